// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseview

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// NewReader returns a Reader that asks the API server. It needs no discovery, so nothing but the one GET is on the path of
// a verdict. The client's own rate limit is off: shared reads are few, and the API server has a priority level for them.
func NewReader(config *rest.Config) (Reader, error) {
	c, err := newRESTClient(config)
	if err != nil {
		return nil, fmt.Errorf("create reader of FencedLeases: %w", err)
	}
	return &restReader{c}, nil
}

// NewSource returns what lists and watches the FencedLeases of all namespaces.
func NewSource(config *rest.Config) (cache.ListerWatcher, error) {
	c, err := newRESTClient(config)
	if err != nil {
		return nil, fmt.Errorf("create source of FencedLeases: %w", err)
	}
	lw := cache.NewFilteredListWatchFromClient(c, v1alpha1.Resource.Resource, metav1.NamespaceAll, func(*metav1.ListOptions) {})
	return cache.ToListWatcherWithWatchListSemantics(lw, c), nil
}

func newRESTClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("build scheme: %w", err)
	}
	config = rest.CopyConfig(config)
	config.GroupVersion = &v1alpha1.SchemeGroupVersion
	config.APIPath = "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.QPS, config.RateLimiter = -1, nil
	// Watches last; every read has a context that ends.
	config.Timeout = 0
	c, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return c, nil
}

type restReader struct{ client *rest.RESTClient }

// Get sends a GET without a resourceVersion. The API server answers it from etcd by a linearizable read, never from its
// watch cache.
func (r *restReader) Get(ctx context.Context, key types.NamespacedName) (*v1alpha1.FencedLease, error) {
	lease := &v1alpha1.FencedLease{}
	err := r.client.Get().Namespace(key.Namespace).Resource(v1alpha1.Resource.Resource).Name(key.Name).Do(ctx).Into(lease)
	if err != nil {
		return nil, err
	}
	return lease, nil
}
