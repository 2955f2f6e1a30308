// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencedlease/fencedlease/test/robustness/history"
	"github.com/fencedlease/fencedlease/test/robustness/index"
)

// Streak is how often in a row a valid holder got no answer while nothing was broken.
type Streak struct {
	Length int
	// Nanoseconds is from the first attempt to the last one.
	Nanoseconds int64
	Process     string
	// After is the fault before it.
	After string
	Last  *history.Op
}

// Streaks returns the longest streak after each fault. Attempts count that were sent after the end of a fault and had
// their answer before the begin of the next one.
func Streaks(x *index.Index) []Streak {
	longest := map[string]Streak{}
	present := map[string]Streak{}
	var order []string
	for _, op := range x.Run.Ops {
		lease := x.Leases[op.Lease]
		if lease == nil || op.Verb.Reads() || op.Verb.OfLease() || cannotCarry(op) || op.Dropped || op.Return == history.Never || op.Return > x.Run.Meta.End {
			continue
		}
		if epoch, current := Current(x, lease, op); !current || !sealedBefore(lease, epoch, op) {
			continue
		}
		process := process(op)
		fault, broken := around(x.Run.Faults, op)
		if broken {
			delete(present, process)
			continue
		}
		streak := present[process]
		switch op.Outcome {
		case history.OK:
			streak = Streak{}
		case history.Refused, history.Failed, history.Early:
			// It was answered, and says nothing about the next one.
		case history.Unknown, history.NotSent:
			if streak.Length == 0 {
				streak = Streak{Process: process, After: fault, Nanoseconds: -op.Invoke}
			}
			streak.Length++
			streak.Last = op
		}
		present[process] = streak
		if best, known := longest[fault]; streak.Length > 0 && (!known || streak.Length > best.Length) {
			if !known {
				order = append(order, fault)
			}
			longest[fault] = streak
		}
	}
	all := make([]Streak, 0, len(order))
	for _, fault := range order {
		streak := longest[fault]
		streak.Nanoseconds += streak.Last.Return
		all = append(all, streak)
	}
	return all
}

// process returns the name of the process that made a call.
func process(op *history.Op) string {
	name, _, _ := strings.Cut(op.Client, "/")
	return name
}

// sealedBefore tells whether the term of an operation needed no seal, or was seen sealed before it was sent: until then its
// writes have to wait.
func sealedBefore(lease *index.Lease, epoch int, op *history.Op) bool {
	begin := lease.Find(epoch, op.Generation, op.Term)
	if begin == nil {
		return false
	}
	from := writesFrom(begin)
	return from != nil && from.Observed <= op.Invoke
}

// around returns the last fault that had ended before an operation was sent, and whether another one overlaps it.
func around(faults []history.Fault, op *history.Op) (last string, broken bool) {
	last = "the start"
	end := int64(0)
	for _, fault := range faults {
		switch {
		case fault.End <= op.Invoke:
			if fault.End > end {
				last, end = fmt.Sprintf("%s of %s", fault.Kind, fault.Target), fault.End
			}
		case fault.Begin < op.Return:
			broken = true
		}
	}
	return last, broken
}

// Available returns a check that no streak is longer than a number of attempts.
func Available(attempts int) Check {
	return Check{"no holder is kept from writing for longer than a fault lasts", func(x *index.Index) []string {
		var found problems
		for _, streak := range Streaks(x) {
			if streak.Length > attempts {
				found.add("after %s, %s got no answer %d times in a row, in %.1f s; the last was %s: %s", streak.After, streak.Process,
					streak.Length, float64(streak.Nanoseconds)/1e9, index.Describe(streak.Last), streak.Last.Message)
			}
		}
		return found
	}}
}

// Minimum is what a run must contain, so that one that did nothing does not pass.
type Minimum struct {
	// Operations is the least number of calls, Commits that of commits, Handovers that of new terms.
	Operations, Commits, Handovers int
	// Late is the least number of writes that were sent after their term had ended.
	Late int
	// PerVerb and PerCarrier are the least numbers of accepted writes.
	PerVerb, PerCarrier int
	// Repetitions is the least number of business operations that were refused as they had been applied. A tenth of it must have
	// followed newer operations, a tenth have come under a later generation, a tenth after a lost answer, and one in 25 have been
	// sent by two processes at once.
	Repetitions int
	// Restored is the least number of operations that were repeated after a restore and applied again as it had undone them, and of
	// those that were refused as it had kept them.
	Restored int
	// Faults are kinds that must have taken effect.
	Faults []string
}

// Preconditions returns a check of what the others take for granted.
func Preconditions(least Minimum) Check {
	return Check{"the run is one that can be judged", func(x *index.Index) []string {
		var found problems
		found = append(found, oneAtATime(x)...)
		stats := Count(x)
		atLeast := func(what string, got, want int) {
			if got < want {
				found.add("%s: %d, at least %d are needed", what, got, want)
			}
		}
		atLeast("operations", stats.Operations, least.Operations)
		atLeast("commits", stats.Commits, least.Commits)
		atLeast("handovers", stats.Handovers, least.Handovers)
		atLeast("writes after the end of their term", stats.Late, least.Late)
		atLeast("repetitions that were told so", stats.Repetitions.Told, least.Repetitions)
		atLeast("repetitions after newer operations", stats.Repetitions.Older, least.Repetitions/10)
		atLeast("repetitions under a later generation", stats.Repetitions.Later, least.Repetitions/10)
		atLeast("repetitions after a lost answer", stats.Repetitions.Lost, least.Repetitions/10)
		atLeast("repetitions by two processes at once", stats.Repetitions.AtOnce, least.Repetitions/25)
		atLeast("repetitions of what a restore had kept", stats.Repetitions.Kept, least.Restored)
		atLeast("repetitions of what a restore had undone", stats.Repetitions.Undone, least.Restored)
		for _, verb := range history.Writes() {
			atLeast("accepted "+string(verb), stats.Verbs[verb][history.OK], least.PerVerb)
		}
		for _, carrier := range history.Carriers() {
			if carrier == history.None {
				atLeast("refused without a token", stats.Carriers[carrier][history.Refused], least.PerCarrier)
				continue
			}
			atLeast("accepted by "+string(carrier), stats.Carriers[carrier][history.OK], least.PerCarrier)
			if carrier != history.Wrap {
				atLeast("refused by "+string(carrier), stats.Carriers[carrier][history.Refused], least.PerCarrier)
			}
		}
		for _, kind := range least.Faults {
			if !slices.ContainsFunc(x.Run.Faults, func(f history.Fault) bool { return f.Kind == kind && f.Effect != "" }) {
				found.add("no fault of kind %q took effect", kind)
			}
		}
		if len(x.Run.Truth) == 0 || x.Run.Meta.End == 0 {
			found.add("the history has no end")
		}
		return found
	}}
}

// oneAtATime checks that no client has two calls in flight.
func oneAtATime(x *index.Index) []string {
	var found problems
	last := map[string]*history.Op{}
	for _, op := range x.Run.Ops {
		if before := last[op.Client]; before != nil && before.Return > op.Invoke {
			found.add("%s was sent before %s had returned", index.Describe(op), index.Describe(before))
		}
		last[op.Client] = op
	}
	return found
}
