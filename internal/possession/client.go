// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package possession

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

const (
	// FieldManager owns the fields of the status that holders write.
	FieldManager = "fencedlease-holder"

	// MaxIdentityLength is the largest length of status.holderIdentity.
	MaxIdentityLength = 253
)

// NewClient returns a client of the API group version of FencedLease. Timeout and rate limits are those of config; a
// timeout also ends watches.
func NewClient(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the types of %s: %w", v1alpha1.SchemeGroupVersion, err)
	}
	c := rest.CopyConfig(config)
	c.APIPath = "/apis"
	c.GroupVersion = &v1alpha1.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	// Custom resources are not served as protobuf, which a config for built-in kinds may ask for.
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", v1alpha1.SchemeGroupVersion, err)
	}
	return client, nil
}

// Client sends the requests of one FencedLease.
type Client struct {
	// REST is a client of the API group version of FencedLease, such as NewClient makes.
	REST rest.Interface
	// Namespace and Name are those of the FencedLease.
	Namespace, Name string
}

// String names the lease.
func (c Client) String() string { return c.Namespace + "/" + c.Name }

// Get reads the lease from the server. Without a resourceVersion the read is linearizable: it shows everything that was
// committed before it began.
func (c Client) Get(ctx context.Context) (*v1alpha1.FencedLease, error) {
	lease := &v1alpha1.FencedLease{}
	err := c.REST.Get().Namespace(c.Namespace).Resource(v1alpha1.Resource.Resource).Name(c.Name).Do(ctx).Into(lease)
	if err != nil {
		return nil, fmt.Errorf("read FencedLease %s: %w", c, err)
	}
	return lease, nil
}

// Create sends a new lease. Its status stays empty, whatever is sent.
func (c Client) Create(ctx context.Context, spec *v1alpha1.FencedLeaseSpec) error {
	lease := &v1alpha1.FencedLease{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name},
		Spec:       *spec,
	}
	err := c.REST.Post().Namespace(c.Namespace).Resource(v1alpha1.Resource.Resource).
		Param("fieldManager", FieldManager).Body(lease).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("create FencedLease %s: %w", c, err)
	}
	return nil
}

// PatchStatus sends a merge patch of the status and returns the lease as it is after it.
func (c Client) PatchStatus(ctx context.Context, patch Patch) (*v1alpha1.FencedLease, error) {
	body, err := patch.Encode()
	if err != nil {
		return nil, err
	}
	lease := &v1alpha1.FencedLease{}
	err = c.REST.Patch(types.MergePatchType).Namespace(c.Namespace).Resource(v1alpha1.Resource.Resource).Name(c.Name).
		SubResource("status").Param("fieldManager", FieldManager).Body(body).Do(ctx).Into(lease)
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// List lists the lease alone. How stale the answer may be is up to the resourceVersion of the options.
func (c Client) List(ctx context.Context, options metav1.ListOptions) (*v1alpha1.FencedLeaseList, error) {
	list := &v1alpha1.FencedLeaseList{}
	if err := c.selected(options).Do(ctx).Into(list); err != nil {
		return nil, fmt.Errorf("list FencedLease %s: %w", c, err)
	}
	return list, nil
}

// Watch watches the lease alone, from the resourceVersion of the options on.
func (c Client) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	w, err := c.selected(options).Watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch FencedLease %s: %w", c, err)
	}
	return w, nil
}

// selected is a read of the lease as a list of at most one.
func (c Client) selected(options metav1.ListOptions) *rest.Request {
	options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, c.Name).String()
	return c.REST.Get().Namespace(c.Namespace).Resource(v1alpha1.Resource.Resource).
		VersionedParams(&options, metav1.ParameterCodec)
}
