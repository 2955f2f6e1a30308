// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
	"github.com/fencedlease/fencedlease/internal/guardkind"
)

// targetReader finds out which objects a lease guards.
type targetReader struct {
	// kinds asks the API server each time: a definition that was installed a moment ago may have objects already.
	kinds     guardkind.Classifier
	namespace string
}

// of returns the guarded resources that are installed, whatever is guarded of them: also a guard of the status alone is
// about objects whose marks count.
func (r targetReader) of(ctx context.Context, lease *v1alpha1.FencedLease) ([]seal.Target, error) {
	in := Input{Namespace: r.namespace, Kinds: map[schema.GroupResource]guardkind.Kind{}}
	type place struct {
		resource  schema.GroupVersionResource
		namespace string
	}
	matchers := map[place][]seal.Matcher{}
	for i := range lease.Spec.Guards {
		guard := &lease.Spec.Guards[i]
		for _, gr := range guardedResources(guard) {
			if _, known := in.Kinds[gr]; known {
				continue
			}
			kind, err := r.kinds.Classify(ctx, gr.Group, gr.Resource)
			if err != nil {
				return nil, fmt.Errorf("classify %s: %w", gr, err)
			}
			in.Kinds[gr] = kind
		}
		placed, _ := resolveGuard(in, lease, i)
		for _, gr := range resourcesOf(placed) {
			kind := in.Kinds[gr]
			if kind.Class != guardkind.CRD || len(kind.Versions) == 0 {
				continue
			}
			where := place{resource: gr.WithVersion(kind.Versions[0])}
			if guard.NamespaceSelector == nil {
				where.namespace = lease.Namespace
			}
			matchers[where] = append(matchers[where], matcherOf(guard))
		}
	}
	var targets []seal.Target
	for where, guards := range matchers {
		t := seal.Target{Resource: where.resource, Namespace: where.namespace, Matchers: guards}
		if where.namespace == "" {
			t.Except = protectedNamespaces(r.namespace)
		}
		targets = append(targets, t)
	}
	slices.SortFunc(targets, func(a, b seal.Target) int {
		return cmp.Or(cmp.Compare(a.Resource.String(), b.Resource.String()), cmp.Compare(a.Namespace, b.Namespace))
	})
	return targets, nil
}

// resourcesOf returns the resources of guards that can be installed, without subresources.
func resourcesOf(guards []placed) []schema.GroupResource {
	resources := map[schema.GroupResource]bool{}
	for _, g := range guards {
		resources[g.GroupResource] = true
	}
	return slices.SortedFunc(maps.Keys(resources), func(a, b schema.GroupResource) int { return cmp.Compare(a.String(), b.String()) })
}

// matcherOf returns what a guard selects. A selector that is not valid selects nothing, in the webhook as well.
func matcherOf(guard *v1alpha1.Guard) seal.Matcher {
	m := seal.Matcher{Objects: selectorOf(guard.ObjectSelector)}
	if !isEverything(guard.NamespaceSelector) {
		m.Namespaces = selectorOf(guard.NamespaceSelector)
	}
	return m
}

// selectorOf returns nil for a selector that is absent or empty: it selects everything.
func selectorOf(selector *metav1.LabelSelector) labels.Selector {
	if selector == nil || isEverything(selector) {
		return nil
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return labels.Nothing()
	}
	return s
}
