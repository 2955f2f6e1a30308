// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencedlease/fencedlease/internal/fence"
)

// Two leaders, one object, one lease: every interleaving of acquisitions, releases, reads, admissions and commits within
// the bounds below, with the real decision. A write goes through the API server's loop: show the stored object, have it
// judged, commit if the object is still the one that was shown, else begin again.

const (
	leaders         = 2
	maxAcquisitions = 3
	writesPerLeader = 2
)

// number is small, so that a state is small.
type number = int8

// possession is one state of the lease.
type possession struct {
	generation number
	holder     number // nobody if released
}

const nobody number = -1

// stamp is the token of one write; the zero value stands for none.
type stamp struct {
	generation    number
	leader, write number
}

// phase is where a leader's write stands.
type phase number

const (
	idle     phase = iota
	sent           // the API server has the request and has shown no object yet
	shown          // the object was shown to admission
	admitted       // the verdict was an acceptance, the commit is to come
)

type writer struct {
	generation number // of the last acquisition, also after the term ended; 0 if there was none
	phase      phase
	writes     number // begun
	token      number // generation that the write in flight presents
	leaseThen  number // generation of the lease when the request arrived
	version    number // of the object as shown
	mark       stamp
}

// world is one state. It is comparable, so that no state is explored twice.
type world struct {
	history [maxAcquisitions*2 + 1]possession // of the lease; the last one is in force
	length  number
	mark    stamp
	version number
	writers [leaders]writer
}

func (w world) lease() possession { return w.history[w.length-1] }

// rules are what an exploration leaves in force.
type rules struct {
	decide func(fence.Write, fence.View) fence.Verdict
	// staleReads lets the lease be read as it was at any time: a replica that believes an old copy to be fresh.
	staleReads bool
	// blindRetry commits after a conflict without asking admission again.
	blindRetry bool
}

// exploration is the outcome: how much was seen, and the first violation with the steps that led to it.
type exploration struct {
	rules                                rules
	states, commits, conflicts, refusals int
	violation                            string
	// verdicts are those given already: the decision is pure.
	verdicts map[question]bool
}

// question is what a verdict depends on.
type question struct {
	presented, mark stamp
	read            possession
}

// step is one action of a leader, and what it leads to.
type step struct {
	next     world
	leader   number
	action   string
	argument number
	// violation says what the step breaks, or is empty.
	violation string
}

func (s step) String() string { return fmt.Sprintf("%c %s %d", 'A'+s.leader, s.action, s.argument) }

func explore(r rules) *exploration {
	type origin struct {
		step   step
		before int
	}
	var start world
	start.history[0] = possession{holder: nobody}
	start.length = 1
	e := &exploration{rules: r, verdicts: map[question]bool{}}
	reached := []origin{{step{next: start}, 0}}
	seen := map[world]bool{start: true}
	for at := 0; at < len(reached) && e.violation == ""; at++ {
		for _, s := range e.steps(reached[at].step.next) {
			if s.violation != "" {
				path := []string{s.String() + ": " + s.violation}
				for back := at; back > 0; back = reached[back].before {
					path = append(path, reached[back].step.String())
				}
				slices.Reverse(path)
				e.violation = strings.Join(path, "\n")
				break
			}
			if !seen[s.next] {
				seen[s.next] = true
				reached = append(reached, origin{s, at})
			}
		}
	}
	e.states = len(reached)
	return e
}

func (e *exploration) steps(at world) []step {
	var out []step
	for i := range number(leaders) {
		me := at.writers[i]
		do := func(action string, argument number, next world, mine writer) {
			next.writers[i] = mine
			out = append(out, step{next: next, leader: i, action: action, argument: argument})
		}
		lease := at.lease()
		// A lease expires while its holder believes to lead: anybody may acquire at any time.
		if lease.generation < maxAcquisitions {
			next, mine := at.with(possession{lease.generation + 1, i}), me
			mine.generation = lease.generation + 1
			do("acquires", mine.generation, next, mine)
		}
		// A release is of one's own term only.
		if lease.holder == i && lease.generation == me.generation {
			do("releases", lease.generation, at.with(possession{lease.generation, nobody}), me)
		}
		switch me.phase {
		case idle:
			if me.generation > 0 && me.writes < writesPerLeader {
				mine := me
				mine.phase, mine.token, mine.leaseThen = sent, me.generation, lease.generation
				mine.writes++
				do("sends a write under", mine.token, at, mine)
			}
		case sent:
			mine := me
			mine.phase, mine.version, mine.mark = shown, at.version, at.mark
			do("is shown the object with mark", mine.mark.generation, at, mine)
		case shown:
			reads := at.history[at.length-1 : at.length]
			if e.rules.staleReads {
				reads = at.history[:at.length]
			}
			for _, read := range reads {
				mine := writer{generation: me.generation, writes: me.writes}
				if e.admits(question{presented(i, me), me.mark, read}) {
					mine = me
					mine.phase = admitted
				} else {
					e.refusals++
				}
				do("is judged by generation", read.generation, at, mine)
			}
		case admitted:
			if me.version != at.version && !e.rules.blindRetry {
				e.conflicts++
				mine := me
				mine.phase, mine.version, mine.mark = sent, 0, stamp{}
				do("meets a conflict under", me.token, at, mine)
				continue
			}
			e.commits++
			next := at
			next.mark, next.version = presented(i, me), at.version+1
			do("commits under", me.token, next, writer{generation: me.generation, writes: me.writes})
			out[len(out)-1].violation = e.broken(at, me)
		}
	}
	return out
}

func (w world) with(p possession) world {
	w.history[w.length] = p
	w.length++
	return w
}

// broken says which promise a commit breaks.
func (e *exploration) broken(at world, me writer) string {
	switch {
	case me.token < at.mark.generation:
		return fmt.Sprintf("generation %d replaces %d", me.token, at.mark.generation)
	case !e.rules.staleReads && me.token < me.leaseThen:
		return fmt.Sprintf("a write under %d arrived when %d was acquired, and lands", me.token, me.leaseThen)
	default:
		return ""
	}
}

func presented(leader number, me writer) stamp { return stamp{me.token, leader, me.writes} }

func (s stamp) String() string {
	if s == (stamp{}) {
		return ""
	}
	return fmt.Sprintf("%d.%s/%c%d", s.generation, termOf(s.generation), 'a'+s.leader, s.write)
}

func termOf(generation number) string { return fmt.Sprintf("term%04d", generation) }

func (e *exploration) admits(q question) bool {
	answer, known := e.verdicts[q]
	if !known {
		lease := fence.Lease{Namespace: "reports", Name: "report-writer", Generation: int64(q.read.generation)}
		if q.read.generation > 0 {
			lease.Term = termOf(q.read.generation)
		}
		if q.read.holder != nobody {
			lease.Holder = string(rune('A' + q.read.holder))
		}
		answer = e.rules.decide(update(marked(q.mark.String()), marked(q.presented.String())), fresh(lease)).Admits()
		e.verdicts[q] = answer
	}
	return answer
}

// ignoringMarks is the decision with its comparison with the mark taken out.
func ignoringMarks(w fence.Write, v fence.View) fence.Verdict {
	w.Old = marked("")
	return fence.Decide(w, v)
}

func TestNoInterleavingLetsACommittedGenerationFall(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]rules{
		"with linearizable reads":                               {decide: fence.Decide},
		"also if the lease is read as it was at any time":       {decide: fence.Decide, staleReads: true},
		"by the lease alone, if every conflict is judged again": {decide: ignoringMarks},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := explore(r)
			t.Logf("%d states, %d commits, %d conflicts, %d refusals", got.states, got.commits, got.conflicts, got.refusals)
			if got.violation != "" {
				t.Errorf("violated by:\n%s", got.violation)
			}
			if got.commits == 0 || got.conflicts == 0 || got.refusals == 0 {
				t.Error("the exploration never commits, never conflicts or never refuses")
			}
		})
	}
}

// The exploration finds what each part of the argument keeps out once that part is taken away.
func TestTheExplorationFindsViolations(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]rules{
		"without the mark, an old reading of the lease admits":   {decide: ignoringMarks, staleReads: true},
		"without a second admission, a conflict commits blindly": {decide: fence.Decide, blindRetry: true},
		"without any fence": {decide: func(fence.Write, fence.View) fence.Verdict {
			return fence.Verdict{Outcome: fence.Allow, Reason: fence.NotSubject}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := explore(r)
			if got.violation == "" {
				t.Fatalf("no violation in %d states", got.states)
			}
			t.Logf("found after %d states:\n%s", got.states, got.violation)
		})
	}
}
