// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"slices"

	"github.com/fencedlease/fencedlease/test/robustness/index"
)

// LateCreatesRemoved checks each deletion by the product: the object was created under an older generation after the term
// had begun that deleted it, and the holder of that term had not written it.
func LateCreatesRemoved(x *index.Index) []string {
	var found problems
	for _, lease := range leases(x) {
		for _, c := range lease.Commits {
			if c.Part != index.Removed || c.Unguarded {
				continue
			}
			mark := c.Object.Marks[lease.Name]
			term := lease.Find(c.Epoch, index.Generation(mark), index.Term(mark))
			if term == nil {
				found.add("%s was deleted by the product under %s, which the lease never had", at(c), mark)
				continue
			}
			sameObject := func(other *index.Commit) bool { return other.Epoch == c.Epoch && other.UID == c.UID }
			created := slices.IndexFunc(lease.Commits, func(other *index.Commit) bool { return sameObject(other) && other.Created })
			if created < 0 || lease.Commits[created].Revision < term.Revision || generation(lease.Commits[created]) >= term.Generation {
				found.add("%s was deleted by the product and is no late create of the term %s", at(c), mark)
				continue
			}
			taken := slices.IndexFunc(lease.Commits, func(other *index.Commit) bool {
				return sameObject(other) && other.Part == index.Main && other.Op != nil && other.Op.Generation >= term.Generation
			})
			if taken >= 0 {
				found.add("%s was deleted by the product after the holder had taken it over: %s", at(c), describe(lease.Commits[taken]))
			}
		}
	}
	return found
}
