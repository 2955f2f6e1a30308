// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	api "github.com/fencedlease/fencedlease/api/v1alpha1"
)

// deletionWarnings says what the deletion of a FencedLease ends.
func deletionWarnings(lease *api.FencedLease) []string {
	protects := guardedNames(lease)
	effect := "stale writers are no longer refused"
	if lease.Spec.Enforcement == api.EnforcementAudit {
		effect = "stale writes are no longer reported"
	}
	subject := fmt.Sprintf("FencedLease %s/%s", lease.Namespace, lease.Name)
	holder := ptr.Deref(lease.Status.HolderIdentity, "")
	generation := ptr.Deref(lease.Status.Generation, 0)
	switch {
	case holder != "" && protects != "":
		return []string{fmt.Sprintf("%s is held by %q under generation %d: its deletion ends that term and the protection of %s, %s; stop its writers first",
			subject, holder, generation, protects, effect)}
	case holder != "":
		return []string{fmt.Sprintf("%s is held by %q under generation %d: its deletion ends that term; stop its holder first",
			subject, holder, generation)}
	case protects != "":
		return []string{fmt.Sprintf("%s is not held, but its deletion ends the protection of %s, %s", subject, protects, effect)}
	default:
		return nil
	}
}

// guardedNames lists the resources that a lease guards, empty if there are none.
func guardedNames(lease *api.FencedLease) string {
	var names []string
	for _, guard := range lease.Spec.Guards {
		for _, group := range guard.APIGroups {
			for _, resource := range resourceNames(guard) {
				names = append(names, schema.GroupResource{Group: group, Resource: resource}.String())
			}
		}
	}
	slices.Sort(names)
	return enumerate(slices.Compact(names))
}
