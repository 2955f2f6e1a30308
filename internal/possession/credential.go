// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package possession

import (
	"slices"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// MaxCredentials is the largest number of status.credentials.
const MaxCredentials = 8

// Recording is the patch that adds the id of a credential to the term, on the lease as it was read. As the list is
// replaced as a whole, the resourceVersion makes sure that nobody else's entry gets lost. The ids in spent are left out,
// unless they are of other terms. Of the rest as many stay as there is room for, the oldest entries of ended terms going
// first.
func Recording(lease *v1alpha1.FencedLease, t Term, id string, spent map[string]bool) Patch {
	entries := slices.Clone(lease.Status.Credentials)
	entries = slices.DeleteFunc(entries, func(c v1alpha1.Credential) bool {
		return c.ID == id || c.Term == t.ID && spent[c.ID]
	})
	for len(entries) >= MaxCredentials {
		oldest := slices.IndexFunc(entries, func(c v1alpha1.Credential) bool { return c.Term != t.ID })
		oldest = max(oldest, 0)
		entries = slices.Delete(entries, oldest, oldest+1)
	}
	return Patch{
		Metadata: &PatchMetadata{ResourceVersion: lease.ResourceVersion},
		Status: PatchStatus{
			Generation: t.Generation, Term: t.ID, HolderIdentity: t.Holder,
			Credentials: append(entries, v1alpha1.Credential{ID: id, Term: t.ID}),
		},
	}
}
