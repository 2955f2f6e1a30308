// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"slices"
	"time"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/robustness/history"
	"github.com/fencedlease/fencedlease/test/robustness/index"
)

// NoneBeforeSeal checks that a term that must be sealed writes nothing before it is, also if its holder does not wait.
func NoneBeforeSeal(x *index.Index) []string {
	var found problems
	for _, lease := range leases(x) {
		for _, c := range lease.Commits {
			if c.Op == nil || c.Unguarded {
				continue // a stamp, or a delete whose author is not known
			}
			begin := lease.Find(c.Epoch, c.Op.Generation, c.Op.Term)
			if begin == nil {
				continue
			}
			if from := writesFrom(begin); from == nil || from.Seal == string(v1alpha1.SealRequired) && from.Revision >= c.Revision {
				found.add("%s was written by a term that was still to be sealed: %s", at(c), describe(c))
			}
		}
	}
	return found
}

// writesFrom returns the state of the lease from which on a term may write, from its begin on: it needs no seal, or has been
// sealed. It is nil if it never may.
func writesFrom(begin *index.Span) *index.Span {
	for span := begin; span != nil && span.Exists && span.Generation == begin.Generation && span.Term == begin.Term; span = span.Next {
		if span.Seal != string(v1alpha1.SealRequired) || span.SealedGeneration == span.Generation {
			return span
		}
	}
	return nil
}

// seal is a generation of a lease that was sealed.
type seal struct {
	epoch      int
	generation int64
	// acquired and revision are when its term began and when it was sealed.
	acquired, revision int64
}

func seals(lease *index.Lease) []seal {
	var all []seal
	for i, span := range lease.Spans {
		if i == 0 || !span.Exists || span.SealedGeneration <= lease.Spans[i-1].SealedGeneration {
			continue
		}
		s := seal{epoch: span.Epoch, generation: span.SealedGeneration, revision: span.Revision}
		if begin := lease.Find(span.Epoch, span.Generation, span.Term); begin != nil {
			s.acquired = begin.Revision
		}
		all = append(all, s)
	}
	return all
}

// NoneAfterSeal checks that a seal has stamped every object that was there when its term began, and that no older write
// commits after it. A late create is no violation, nor is what is written to it until the controller has stamped it.
func NoneAfterSeal(x *index.Index) []string {
	var found problems
	for _, lease := range leases(x) {
		for _, s := range seals(lease) {
			checkSeal(&found, lease, s)
		}
	}
	return found
}

func checkSeal(found *problems, lease *index.Lease, s seal) {
	marks := map[string]int64{}   // by uid, of what existed when the seal was done
	created := map[string]int64{} // revisions
	for _, c := range lease.Commits {
		if c.Epoch != s.epoch {
			continue
		}
		if c.Created {
			created[c.UID] = c.Revision
		}
		if c.Revision < s.revision {
			if marks[c.UID] = index.Generation(c.Object.Marks[lease.Name]); c.Deleted {
				delete(marks, c.UID)
			}
			continue
		}
		if c.Unguarded || c.Created || generation(c) >= s.generation {
			continue
		}
		stamped := c.Before != nil && index.Generation(c.Before.Marks[lease.Name]) >= s.generation
		if created[c.UID] > s.acquired && !stamped {
			continue // a late create that the controller has not found yet
		}
		found.add("%s was written under %d after generation %d had been sealed at revision %d: %s", at(c), generation(c), s.generation, s.revision, describe(c))
	}
	for uid, mark := range marks {
		if mark < s.generation && created[uid] <= s.acquired {
			found.add("generation %d of %s was sealed at revision %d, and object %s had mark %d", s.generation, lease.LeaseRef, s.revision, uid, mark)
		}
	}
}

// LateCreates are the objects that were created under an older generation after the term of a generation that is sealed.
func LateCreates(x *index.Index) []*index.Commit {
	var late []*index.Commit
	for _, lease := range leases(x) {
		all := seals(lease)
		for _, c := range lease.Commits {
			if c.Created && !c.Unguarded && slices.ContainsFunc(all, func(s seal) bool {
				return s.epoch == c.Epoch && s.acquired < c.Revision && generation(c) < s.generation
			}) {
				late = append(late, c)
			}
		}
	}
	return late
}

// reportTime is how long the controller may take to report a late create while nothing is broken.
const reportTime = int64(10 * time.Second)

// LateCreatesReported checks that an object that was created under an older generation after a seal is stamped, and that the
// lease says so, unless it is deleted, the term ends, something breaks or the run ends meanwhile.
func LateCreatesReported(x *index.Index) []string {
	var found problems
	for _, lease := range leases(x) {
		for _, c := range lease.Commits {
			until := c.Observed + reportTime
			if !c.Created || c.Unguarded || until > x.Run.Meta.End || disturbed(x, lease, c, until) {
				continue
			}
			for _, s := range seals(lease) {
				if s.epoch != c.Epoch || s.revision > c.Revision || generation(c) >= s.generation || ended(lease, s, until) {
					continue
				}
				stamped := slices.ContainsFunc(lease.Commits, func(later *index.Commit) bool {
					return later.Epoch == c.Epoch && later.UID == c.UID && later.Revision > c.Revision && !later.Deleted &&
						index.Generation(later.Object.Marks[lease.Name]) >= s.generation
				})
				reported := slices.ContainsFunc(lease.Reports, func(r index.Report) bool { return r.Epoch == c.Epoch && r.Revision > c.Revision })
				if !stamped || !reported {
					found.add("%s was created late, after the seal of %d: stamped %t, reported %t", at(c), s.generation, stamped, reported)
				}
			}
		}
	}
	return found
}

// disturbed tells whether a late create need not be reported: something was broken, or the object was gone.
func disturbed(x *index.Index, lease *index.Lease, c *index.Commit, until int64) bool {
	return slices.ContainsFunc(x.Run.Faults, func(f history.Fault) bool { return f.Begin < until && f.End+reportTime > c.Observed }) ||
		slices.ContainsFunc(lease.Commits, func(later *index.Commit) bool {
			return later.Deleted && later.UID == c.UID && later.Epoch == c.Epoch && later.Observed < until
		})
}

// ended tells whether the term of a seal ended before a time.
func ended(lease *index.Lease, s seal, until int64) bool {
	return slices.ContainsFunc(lease.Spans, func(span *index.Span) bool {
		return span.Epoch == s.epoch && span.Revision > s.revision && span.Generation > s.generation && span.Earliest < until
	})
}
