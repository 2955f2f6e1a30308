// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names reports whether the guard's apiGroups and resources name a resource, or a subresource of it: one that is not named
// stays open. The main resource is the empty subresource. Selectors are not looked at.
func (g *Guard) Names(resource schema.GroupResource, subresource string) bool {
	if !slices.Contains(g.APIGroups, resource.Group) {
		return false
	}
	name := resource.Resource
	if slices.Contains(g.Resources, name+"/*") {
		return true
	}
	if subresource != "" {
		name += "/" + subresource
	}
	return slices.Contains(g.Resources, name)
}
