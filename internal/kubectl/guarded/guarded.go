// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guarded finds out which leases guard an object, as the webhook does, and which objects a lease guards. What is
// in force is for the API server to say; this is for telling people.
package guarded

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// Object is what guards look at.
type Object struct {
	Resource    schema.GroupResource
	Subresource string
	Namespace   string
	// Labels are those of the states of the object that a write is about: the stored one, the one to be stored, or both.
	// An object under a guard in one of them is under the guard.
	Labels []labels.Set
	// AnyLabels says that the labels are not all known, so that objectSelectors are taken to match.
	AnyLabels bool
	// NamespaceLabels returns the labels of the object's namespace. It is asked only where a guard selects by them.
	NamespaceLabels func(context.Context) (labels.Set, error)
}

// By returns the indexes of the guards of a lease that the object is under.
func By(ctx context.Context, lease *v1alpha1.FencedLease, o Object) ([]int, error) {
	var found []int
	for i, g := range lease.Spec.Guards {
		if !g.Names(o.Resource, o.Subresource) {
			continue
		}
		reaches, err := reachesNamespace(ctx, g, lease.Namespace, o)
		if err != nil {
			return nil, fmt.Errorf("match guard %d of FencedLease %s/%s: %w", i, lease.Namespace, lease.Name, err)
		}
		if !reaches {
			continue
		}
		selects, err := selectsObject(g, o)
		if err != nil {
			return nil, fmt.Errorf("match guard %d of FencedLease %s/%s: %w", i, lease.Namespace, lease.Name, err)
		}
		if selects {
			found = append(found, i)
		}
	}
	return found, nil
}

func reachesNamespace(ctx context.Context, g v1alpha1.Guard, own string, o Object) (bool, error) {
	switch {
	case g.NamespaceSelector == nil:
		return o.Namespace != "" && o.Namespace == own, nil
	case o.Namespace == "":
		return true, nil
	case o.Namespace == metav1.NamespaceSystem:
		return false, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(g.NamespaceSelector)
	if err != nil {
		return false, fmt.Errorf("read namespaceSelector: %w", err)
	}
	if selector.Empty() {
		return true, nil
	}
	set, err := o.NamespaceLabels(ctx)
	if err != nil {
		return false, err
	}
	return selector.Matches(set), nil
}

func selectsObject(g v1alpha1.Guard, o Object) (bool, error) {
	if g.ObjectSelector == nil || o.AnyLabels {
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(g.ObjectSelector)
	if err != nil {
		return false, fmt.Errorf("read objectSelector: %w", err)
	}
	return slices.ContainsFunc(o.Labels, func(set labels.Set) bool { return selector.Matches(set) }), nil
}

// Kinds returns the guarded resources of a guard without their subresources, each once.
func Kinds(g v1alpha1.Guard) []schema.GroupResource {
	var kinds []schema.GroupResource
	for _, group := range g.APIGroups {
		for _, resource := range g.Resources {
			name, _, _ := strings.Cut(resource, "/")
			kind := schema.GroupResource{Group: group, Resource: name}
			if !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	return kinds
}
