// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// Namespaces tells the labels of a namespace.
type Namespaces interface {
	// Cached returns the labels as last heard of, of any age, and false if nothing was heard.
	Cached(ctx context.Context, name string) (labels.Set, bool)
	// Live reads the labels from the API server.
	Live(ctx context.Context, name string) (labels.Set, error)
}

// matching returns the guards of a lease that match a review. An own-namespace guard matches namespaced objects of the
// lease's namespace; a guard with a namespaceSelector matches those of the namespaces selected, and cluster-scoped ones.
func (h *Handler) matching(ctx context.Context, lease *v1alpha1.FencedLease, r *review) ([]v1alpha1.Guard, error) {
	var matching []v1alpha1.Guard
	for i := range lease.Spec.Guards {
		g := lease.Spec.Guards[i]
		if !g.Names(r.resource.GroupResource(), r.subresource) {
			continue
		}
		inNamespace, err := h.reachesNamespace(ctx, g, lease.Namespace, r.namespace)
		if err != nil {
			return nil, fmt.Errorf("match namespace of guard %d of FencedLease %s/%s: %w", i, lease.Namespace, lease.Name, err)
		}
		if !inNamespace {
			continue
		}
		selected, err := selectsObject(g.ObjectSelector, r)
		if err != nil {
			return nil, fmt.Errorf("match objectSelector of guard %d of FencedLease %s/%s: %w", i, lease.Namespace, lease.Name, err)
		}
		if selected {
			matching = append(matching, g)
		}
	}
	return matching, nil
}

func (h *Handler) reachesNamespace(ctx context.Context, g v1alpha1.Guard, own, namespace string) (bool, error) {
	if g.NamespaceSelector == nil {
		return namespace != "" && namespace == own, nil
	}
	if namespace == "" {
		return true, nil
	}
	if slices.Contains(h.options.ExcludedNamespaces, namespace) {
		return false, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(g.NamespaceSelector)
	if err != nil {
		return false, err
	}
	if selector.Empty() {
		return true, nil
	}
	// The API server has matched the same selector by its own copy before it called. A cached match is enough to apply
	// the guard; only a fresh read may leave it out.
	if set, known := h.options.Namespaces.Cached(ctx, namespace); known && selector.Matches(set) {
		return true, nil
	}
	set, err := h.options.Namespaces.Live(ctx, namespace)
	if err != nil {
		return false, fmt.Errorf("get namespace %s: %w", namespace, err)
	}
	return selector.Matches(set), nil
}

// selectsObject reports whether the object is under a guard before or after the write, so that it can neither enter nor
// leave the guard unseen.
func selectsObject(s *metav1.LabelSelector, r *review) (bool, error) {
	if s == nil {
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return false, err
	}
	return r.oldLabels != nil && selector.Matches(r.oldLabels) || r.newLabels != nil && selector.Matches(r.newLabels), nil
}
