// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// fieldManager owns the fields of the status that holders write.
const fieldManager = "fencedlease-holder"

// NewClient returns a client of the API group version of FencedLease. Timeout and rate limits are those of config.
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

// leaseClient sends the requests of one FencedLease.
type leaseClient struct {
	client          rest.Interface
	namespace, name string
}

// String names the lease.
func (c leaseClient) String() string { return c.namespace + "/" + c.name }

// get reads the lease from the server. Without a resourceVersion the read is linearizable: it shows everything that was
// committed before it began.
func (c leaseClient) get(ctx context.Context) (*v1alpha1.FencedLease, error) {
	lease := &v1alpha1.FencedLease{}
	err := c.client.Get().Namespace(c.namespace).Resource(v1alpha1.Resource.Resource).Name(c.name).Do(ctx).Into(lease)
	if err != nil {
		return nil, fmt.Errorf("read FencedLease %s: %w", c, err)
	}
	return lease, nil
}

// create sends a new lease. Its status stays empty, whatever is sent.
func (c leaseClient) create(ctx context.Context, spec *v1alpha1.FencedLeaseSpec) error {
	lease := &v1alpha1.FencedLease{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name},
		Spec:       *spec,
	}
	err := c.client.Post().Namespace(c.namespace).Resource(v1alpha1.Resource.Resource).
		Param("fieldManager", fieldManager).Body(lease).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("create FencedLease %s: %w", c, err)
	}
	return nil
}

// patchStatus sends a merge patch of the status and returns the lease as it is after it.
func (c leaseClient) patchStatus(ctx context.Context, patch statusPatch) (*v1alpha1.FencedLease, error) {
	body, err := patch.encode()
	if err != nil {
		return nil, err
	}
	lease := &v1alpha1.FencedLease{}
	err = c.client.Patch(types.MergePatchType).Namespace(c.namespace).Resource(v1alpha1.Resource.Resource).Name(c.name).
		SubResource("status").Param("fieldManager", fieldManager).Body(body).Do(ctx).Into(lease)
	if err != nil {
		return nil, err
	}
	return lease, nil
}
