// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// guardIndex is the name of the index from guarded resources to leases.
const guardIndex = "guards"

// guardQuery asks the index for the leases that may guard objects of a resource in a namespace. It is an object of the
// index function, so that both of its keys are looked up in one step: a lease whose guards move from one key to the other
// is never missed.
type guardQuery struct {
	resource  schema.GroupResource
	namespace string
}

// guardKeys returns the index keys of a lease: one for each group and resource that a guard of it names. Subresource forms
// count as their resource.
func guardKeys(obj any) ([]string, error) {
	if query, ok := obj.(guardQuery); ok {
		keys := []string{guardKey("", query.resource)}
		if query.namespace != "" {
			keys = append(keys, guardKey(query.namespace, query.resource))
		}
		return keys, nil
	}
	lease, ok := obj.(*v1alpha1.FencedLease)
	if !ok {
		return nil, fmt.Errorf("index %T: not a FencedLease", obj)
	}
	var keys []string
	for i := range lease.Spec.Guards {
		guard := &lease.Spec.Guards[i]
		// Guards that reach beyond the lease's namespace are under the empty namespace.
		namespace := lease.Namespace
		if guard.NamespaceSelector != nil {
			namespace = ""
		}
		for _, group := range guard.APIGroups {
			for _, resource := range guard.Resources {
				resource, _, _ = strings.Cut(resource, "/")
				keys = append(keys, guardKey(namespace, schema.GroupResource{Group: group, Resource: resource}))
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

func guardKey(namespace string, gr schema.GroupResource) string {
	return namespace + "/" + gr.Resource + "/" + gr.Group
}

// guarding returns the leases with a guard that may guard objects of the resource in the namespace, in the order of their
// namespaces and names.
func (s *store) guarding(gr schema.GroupResource, namespace string) ([]*v1alpha1.FencedLease, error) {
	found, err := s.items.Index(guardIndex, guardQuery{gr, namespace})
	if err != nil {
		return nil, fmt.Errorf("look up guards of %s: %w", gr, err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	leases := make([]*v1alpha1.FencedLease, 0, len(found))
	for _, obj := range found {
		if lease, ok := obj.(*v1alpha1.FencedLease); ok {
			leases = append(leases, lease)
		}
	}
	slices.SortFunc(leases, func(a, b *v1alpha1.FencedLease) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return leases, nil
}
