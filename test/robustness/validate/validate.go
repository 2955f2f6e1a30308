// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validate checks the parts of the promise on the committed states, one function each. A function returns what
// violates it, each as a sentence that names the operations and revisions.
package validate

import (
	"fmt"
	"slices"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/robustness/history"
	"github.com/fencedlease/fencedlease/test/robustness/index"
)

// Check is a part of the promise.
type Check struct {
	Name string
	Run  func(*index.Index) []string
}

// Checks are all of them.
func Checks() []Check {
	return []Check{
		{"every commit has its operation, and every answer its commit", (*index.Index).Consistent},
		{"generations of a lease never fall, and change only with the term", LeaseGenerations},
		{"committed generations on an object never fall", NeverFalls},
		{"the mark moves in the same commit", MarkMoves},
		{"no write that was sent after its term had ended commits", NoLateWrite},
		{"no write under a term commits before its seal", NoneBeforeSeal},
		{"no write under an older generation commits after the seal of a newer one", NoneAfterSeal},
		{"every late create was stamped and reported", LateCreatesReported},
		{"the product deletes late creates only", LateCreatesRemoved},
		{"every refusal was justified", RefusalsJustified},
		{"no operation is applied again while it is recorded", AppliedOnce},
		{"records of operations follow from those before", RecordsFollow},
		{"every repetition that was refused was one", RepetitionsJustified},
	}
}

type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

func leases(x *index.Index) []*index.Lease {
	all := make([]*index.Lease, 0, len(x.Leases))
	for _, lease := range x.Leases {
		all = append(all, lease)
	}
	slices.SortFunc(all, func(a, b *index.Lease) int {
		if a.Namespace < b.Namespace {
			return -1
		}
		return 1
	})
	return all
}

func at(c *index.Commit) string {
	return fmt.Sprintf("revision %d of epoch %d of %s/%s", c.Revision, c.Epoch, c.Namespace, c.Name)
}

// LeaseGenerations checks that generations never fall within an epoch, also over a deletion, and change only with the term.
func LeaseGenerations(x *index.Index) []string {
	var found problems
	for _, lease := range leases(x) {
		var last *index.Span
		highest, newest := int64(0), ""
		for _, span := range lease.Spans {
			if last != nil && last.Epoch != span.Epoch {
				last, highest, newest = nil, 0, ""
			}
			if last != nil && span.Exists && last.Exists && last.UID == span.UID {
				switch {
				case span.Generation < last.Generation:
					found.add("%s: generation fell from %d to %d at revision %d", lease.LeaseRef, last.Generation, span.Generation, span.Revision)
				case span.Generation != last.Generation && span.Term == last.Term:
					found.add("%s: generation changed from %d to %d without a new term at revision %d", lease.LeaseRef, last.Generation, span.Generation, span.Revision)
				case span.Generation == last.Generation && span.Term != last.Term:
					found.add("%s: generation %d has two terms, %s and %s", lease.LeaseRef, span.Generation, last.Term, span.Term)
				case span.Term == last.Term && span.Holder != last.Holder && span.Holder != "":
					found.add("%s: the holder of term %s changed to %s at revision %d", lease.LeaseRef, span.Term, span.Holder, span.Revision)
				}
			}
			if span.Exists && span.Generation > 0 {
				if span.Generation <= highest && span.Term != newest {
					found.add("%s: generation %d at revision %d, %d was handed out before", lease.LeaseRef, span.Generation, span.Revision, highest)
				}
				if span.Generation > highest {
					highest, newest = span.Generation, span.Term
				}
			}
			last = span
		}
	}
	return found
}

// generation returns the generation under which a commit was made, the highest of those that are possible.
func generation(c *index.Commit) int64 {
	switch {
	case c.Op != nil:
		return c.Op.Generation
	case c.Part == index.Stamp || c.Part == index.Removed:
		return index.Generation(c.Object.Marks[c.Lease.Name])
	}
	highest := int64(0)
	for _, candidate := range c.Candidates {
		highest = max(highest, candidate.Generation)
	}
	return highest
}

// NeverFalls checks that on one object, from its creation to its deletion, neither the mark nor the generation of the
// writer falls.
func NeverFalls(x *index.Index) []string {
	var found problems
	for _, lease := range leases(x) {
		type life struct {
			epoch int
			uid   string
		}
		writers := map[life]int64{}
		for _, c := range lease.Commits {
			l := life{c.Epoch, c.UID}
			before := int64(0)
			if c.Before != nil && !c.Created {
				before = index.Generation(c.Before.Marks[lease.Name])
			}
			highest := max(writers[l], before)
			own := generation(c)
			after := own
			if !c.Deleted {
				after = index.Generation(c.Object.Marks[lease.Name])
			}
			switch {
			case c.Unguarded:
				// Nothing was promised; what follows is measured by what is there now.
				writers[l] = 0
				continue
			case own < highest:
				found.add("%s was written under %d, after a write under %d: %s", at(c), own, highest, describe(c))
			case !c.Deleted && after < before:
				found.add("%s has mark %d, it was %d before: %s", at(c), after, before, describe(c))
			}
			writers[l] = max(highest, own)
		}
	}
	return found
}

func describe(c *index.Commit) string {
	switch {
	case c.Op != nil:
		return index.Describe(c.Op)
	case len(c.Candidates) > 0:
		return fmt.Sprintf("one of %d deletes that were not answered", len(c.Candidates))
	}
	if c.Part == index.Removed {
		return "a deletion by the product"
	}
	return "a stamp"
}

// MarkMoves checks that an accepted write of the object itself leaves its token there.
func MarkMoves(x *index.Index) []string {
	var found problems
	for _, lease := range leases(x) {
		for _, c := range lease.Commits {
			if c.Part != index.Main || c.Op == nil || c.Unguarded {
				continue
			}
			mark := c.Object.Marks[lease.Name]
			if index.Generation(mark) != c.Op.Generation || index.Term(mark) != c.Op.Term && !c.Op.Bare {
				found.add("%s has mark %q after %s", at(c), mark, index.Describe(c.Op))
			} else if c.Op.Operation != "" && mark != presented(c.Op) && !inherits(lease, c) {
				found.add("%s has mark %q, %q was presented by %s", at(c), mark, presented(c.Op), index.Describe(c.Op))
			}
		}
	}
	return found
}

// fast tells whether a write may be admitted without a read in a term with handover Seal: until the next seal, also after
// the term has ended.
func fast(span *index.Span, verb history.Verb) bool {
	return verb.Updates() && span.Handover == string(v1alpha1.HandoverSeal)
}

// NoLateWrite checks each commit against what the lease said: its token must have been the holder's, and must not have
// ceased to be before the write was sent. What a restore has undone is no token of the epoch after it.
func NoLateWrite(x *index.Index) []string {
	var found problems
	for _, lease := range leases(x) {
		for _, c := range lease.Commits {
			if c.Unguarded || c.Part == index.Stamp || c.Part == index.Removed {
				continue
			}
			var reasons problems
			possible := false
			ops := c.Candidates
			if c.Op != nil {
				ops = []*history.Op{c.Op}
			}
			for _, op := range ops {
				reason := late(lease, c, op)
				if reason == "" {
					possible = true
				}
				reasons.add("%s: %s", index.Describe(op), reason)
			}
			if !possible {
				found.add("%s was committed: %s", at(c), slices.Collect(slices.Values(reasons)))
			}
		}
	}
	return found
}

// late says why an operation must not have made a commit, or nothing.
func late(lease *index.Lease, c *index.Commit, op *history.Op) string {
	if op.Generation == 0 {
		return "it presents no token"
	}
	span := lease.Find(c.Epoch, op.Generation, op.Term)
	switch {
	case span == nil:
		return "the lease never had its term in this epoch"
	case c.Revision <= span.Revision:
		return fmt.Sprintf("its term began at revision %d", span.Revision)
	}
	end := span.End()
	if end == nil || end.Observed > op.Invoke {
		return ""
	}
	if fast(span, op.Verb) {
		return "" // NoneAfterSeal says until when
	}
	return fmt.Sprintf("its term had ended at revision %d, %.3f ms before it was sent", end.Revision, float64(op.Invoke-end.Observed)/1e6)
}

// RefusalsJustified checks each refusal: at some moment between the call and the answer its token must not have been the
// holder's.
func RefusalsJustified(x *index.Index) []string {
	var found problems
	for _, lease := range leases(x) {
		for _, op := range x.Ops(lease.LeaseRef) {
			if cannotCarry(op) || repeats(op) || lease.BroughtBack(x.Run.Meta, op) {
				continue
			}
			epoch, current := Current(x, lease, op)
			switch {
			case !current:
			case op.Outcome == history.Refused && !forgotten(epoch, op):
				found.add("%s was refused while its term was current: %s", index.Describe(op), op.Message)
			case op.Outcome == history.Early && sealedBefore(lease, epoch, op):
				found.add("%s was held up though its term was sealed: %s", index.Describe(op), op.Message)
			}
		}
	}
	return found
}

// cannotCarry tells whether an operation presents no token though its client has one: a Scale and a collection have no
// annotations, the intent to delete is the last write's only until there is another one, and presents nothing if it is stored
// already.
func cannotCarry(op *history.Op) bool {
	return op.Carrier == history.None ||
		op.Carrier == history.Annotation && (op.Verb == history.Scale || op.Verb.Deletes()) ||
		op.Intent && op.Cause == "MissingToken"
}

// Current tells whether the token of an operation was the holder's during all of it, and in which epoch.
func Current(x *index.Index, lease *index.Lease, op *history.Op) (epoch int, current bool) {
	for i := range x.Run.Meta.Epochs {
		span := lease.Find(i, op.Generation, op.Term)
		if span == nil || op.Invoke < span.Observed || i > 0 && op.Invoke < x.Run.Meta.Epochs[i].Begin {
			continue
		}
		until := history.Never
		if end := span.End(); end != nil {
			until = end.Earliest
		} else if i+1 < len(x.Run.Meta.Epochs) {
			until = x.Run.Meta.Epochs[i+1].Cut
		}
		if op.Return < until {
			return i, true
		}
	}
	return 0, false
}

// forgotten tells whether a restore may have undone what the lease knew of a credential.
func forgotten(epoch int, op *history.Op) bool {
	return op.Carrier == history.Credential && epoch > 0
}
