// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"github.com/fencedlease/fencedlease/test/robustness/history"
	"github.com/fencedlease/fencedlease/test/robustness/index"
)

// Stats are the figures of a run.
type Stats struct {
	Operations, Commits, Stamps, Handovers, Releases int
	// Late are the writes that were sent after their term had ended, InFlight those that were on their way at its end and
	// were committed after it.
	Late, InFlight int
	// LateCreates are all, Removed those that the product has deleted.
	LateCreates, Removed int
	// BroughtBack are refusals of terms that a restore made the holder's again.
	BroughtBack     int
	Unguarded       int
	UnsureDeletes   int
	Verbs           map[history.Verb]map[history.Outcome]int
	Carriers        map[history.Carrier]map[history.Outcome]int
	Causes          map[string]int
	Faults          map[string]int
	UnknownResolved int
	LongestStreak   int
	Repetitions     Repetitions
}

// Count returns the figures.
func Count(x *index.Index) Stats {
	s := Stats{
		Verbs: map[history.Verb]map[history.Outcome]int{}, Carriers: map[history.Carrier]map[history.Outcome]int{},
		Causes: map[string]int{}, Faults: map[string]int{}, LateCreates: len(LateCreates(x)), Repetitions: CountRepetitions(x),
	}
	for _, op := range x.Run.Ops {
		s.Operations++
		increment(s.Verbs, op.Verb, op.Outcome)
		if op.Carrier != "" {
			increment(s.Carriers, op.Carrier, op.Outcome)
		}
		if op.Outcome == history.Refused {
			s.Causes[op.Cause]++
			if lease := x.Leases[op.Lease]; lease != nil && lease.BroughtBack(x.Run.Meta, op) && lease.Find(x.Run.Meta.Epoch(op), op.Generation, op.Term) != nil {
				s.BroughtBack++
			}
		}
		if op.Outcome == history.Unknown && x.MadeBy[op.ID] != nil {
			s.UnknownResolved++
		}
		if lease := x.Leases[op.Lease]; lease != nil && op.Generation != 0 && !op.Verb.OfLease() && op.Outcome != history.NotSent && over(lease, op) {
			s.Late++
		}
	}
	for _, lease := range x.Leases {
		for _, span := range lease.Spans {
			switch {
			case span.Next == nil || !span.Next.Exists:
			case span.Next.Term != span.Term:
				s.Handovers++
			case span.Holder != "" && span.Next.Holder == "":
				s.Releases++
			}
		}
		for _, c := range lease.Commits {
			s.Commits++
			switch c.Part {
			case index.Stamp:
				s.Stamps++
			case index.Removed:
				s.Removed++
			case index.Main, index.Status, index.Scale, index.Gone:
			}
			if c.Unguarded {
				s.Unguarded++
			}
			if len(c.Candidates) > 0 {
				s.UnsureDeletes++
			}
			if c.Op == nil || c.Unguarded {
				continue
			}
			if span := lease.Find(c.Epoch, c.Op.Generation, c.Op.Term); span != nil && span.End() != nil && span.End().Revision < c.Revision {
				s.InFlight++
			}
		}
	}
	for _, fault := range x.Run.Faults {
		if fault.Effect != "" {
			s.Faults[fault.Kind]++
		}
	}
	for _, streak := range Streaks(x) {
		s.LongestStreak = max(s.LongestStreak, streak.Length)
	}
	return s
}

// over tells whether the term of an operation had ended when it was sent, in every epoch.
func over(lease *index.Lease, op *history.Op) bool {
	ended := false
	for _, span := range lease.Spans {
		if !span.Holds(op.Generation, op.Term) {
			continue
		}
		if end := span.End(); end == nil || end.Observed > op.Invoke {
			return false
		}
		ended = true
	}
	return ended
}

func increment[K comparable](counts map[K]map[history.Outcome]int, key K, outcome history.Outcome) {
	if counts[key] == nil {
		counts[key] = map[history.Outcome]int{}
	}
	counts[key][outcome]++
}
