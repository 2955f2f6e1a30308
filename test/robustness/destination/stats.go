// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

// Stats are the figures of a run, by what they count.
type Stats map[string]int

// What is counted.
const (
	handovers     = "handovers"
	calls         = "calls"
	applied       = "operations applied"
	replayed      = "repetitions that were answered by the record"
	older         = "repetitions after a newer operation"
	later         = "repetitions under a later generation"
	atOnce        = "repetitions that two processes sent at once"
	resolved      = "lost answers that the call itself looked up as applied"
	lateResolved  = "late COMMITs that the call itself looked up as applied"
	lateUndone    = "late COMMITs that never came to be, told so"
	unknown       = "unknown outcomes"
	unknownDone   = "unknown outcomes that were applied"
	unknownNever  = "unknown outcomes that were not applied"
	settled       = "unknown outcomes that the same process settled"
	lookedUp      = "lookups and finds: recorded"
	lookedUpNot   = "lookups and finds: not recorded"
	takes         = "control rows taken before writing"
	stale         = "stale terms refused"
	forked        = "forked terms refused"
	beyondHorizon = "operations applied again beyond the horizon"
	kept          = "repetitions that were answered by a record from the backup"
	undone        = "operations applied again that a restore had undone"
	pausedEnded   = "paused transactions that the database ended"
)

// Count returns the figures.
func Count(run *Run) Stats {
	x := newIndex(run)
	s := Stats{handovers: run.Handovers, calls: len(run.Calls)}
	for kind, n := range run.Faults {
		s[kind] += n
	}
	unsettled := map[string]bool{}
	for _, call := range run.Calls {
		x.count(s, call)
		who := call.Writer + " " + call.Row + " " + call.Operation
		switch call.Outcome {
		case Unknown:
			unsettled[who] = true
		case Applied, Recorded, NotRecorded:
			if unsettled[who] {
				s[settled]++
			}
			delete(unsettled, who)
		case Taken, Refused, Failed:
		}
	}
	for number, epoch := range x.Epochs {
		for k, entries := range x.byKey[number] {
			for _, e := range entries {
				if e.at < epoch.Base {
					continue
				}
				if e != entries[0] {
					s[beyondHorizon]++
				}
				// Undone is what the epoch before has and the backup has not.
				if number > 0 && slices.ContainsFunc(x.byKey[number-1][k], func(old *entry) bool { return x.byCall[number][old.Call] == nil }) {
					s[undone]++
				}
			}
		}
	}
	return s
}

func (x *index) count(s Stats, call *Call) {
	if call.Fault != "" {
		s[call.Fault]++
	}
	if call.Fault == Pause && call.Outcome == Failed {
		s[pausedEnded]++
	}
	switch call.Outcome {
	case Applied:
		s[applied]++
	case Taken:
		s[takes]++
	case Recorded:
		switch {
		case call.Verb != Do:
			s[lookedUp]++
		case call.Record.Call == call.ID && call.Fault == LostAnswer:
			s[resolved]++
		case call.Record.Call == call.ID && call.Fault == LateCommit:
			s[lateResolved]++
		case call.Record.Call != call.ID:
			x.countReplay(s, call)
		}
	case NotRecorded:
		s[lookedUpNot]++
	case Refused:
		switch call.Cause {
		case string(fenced.StaleToken):
			s[stale]++
		case string(fenced.ForkedTerm):
			s[forked]++
		}
	case Failed:
		if call.Fault == LateCommit {
			s[lateUndone]++
		}
	case Unknown:
		s[unknown]++
		if call.Verb == Do && x.span(call, func(e int) bool { return x.byCall[e][call.ID] != nil }) {
			s[unknownDone]++
		} else {
			s[unknownNever]++
		}
	}
}

func (x *index) countReplay(s Stats, call *Call) {
	s[replayed]++
	if call.Record.Token.Generation < call.Token.Generation {
		s[later]++
	}
	by := x.calls[call.Record.Call]
	if by != nil && by.Writer != call.Writer && by.Return > call.Invoke && call.Return > by.Invoke {
		s[atOnce]++
	}
	if call.First != call.Last || call.Last >= len(x.Epochs) {
		return
	}
	e := x.byCall[call.Last][call.Record.Call]
	if e == nil {
		return
	}
	if e.at < x.Epochs[call.Last].Base {
		s[kept]++
	}
	if slices.ContainsFunc(x.byRow[call.Last][e.row][e.nth+1:], func(next *entry) bool {
		newer := x.calls[next.Call]
		return newer != nil && newer.Outcome == Applied && newer.Return < call.Invoke
	}) {
		s[older]++
	}
}

// Least is what a run must have met.
func Least() Stats {
	return Stats{
		handovers: 15, calls: 800, applied: 150, replayed: 100, older: 20, later: 20, atOnce: 2,
		LostAnswer: 10, resolved: 5, LateCommit: 10, lateResolved: 3, lateUndone: 1, Pause: 10, pausedEnded: 3,
		unknown: 3, settled: 1, lookedUp: 20, lookedUpNot: 5, takes: 10, stale: 50, forked: 1,
		beyondHorizon: 1, kept: 2, undone: 1,
		Crash: 2, Restore: 2, RaisedRow: 1, IssuerUndo: 1, RaisedLease: 1,
	}
}

// Least returns what a run lacks of the least figures that it must have.
func (s Stats) Least(least Stats) []string {
	var missing []string
	for _, what := range slices.Sorted(maps.Keys(least)) {
		if s[what] < least[what] {
			missing = append(missing, fmt.Sprintf("%s: %d, at least %d are needed", what, s[what], least[what]))
		}
	}
	return missing
}

// String prints the figures, one on a line.
func (s Stats) String() string {
	var text strings.Builder
	for _, what := range slices.Sorted(maps.Keys(s)) {
		_, _ = fmt.Fprintf(&text, "%6d  %s\n", s[what], what)
	}
	return text.String()
}
