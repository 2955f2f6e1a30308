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

// Leaders, one object, one lease: every interleaving of acquisitions, also by the same leader again, releases, writes of
// all kinds, reads, admissions and commits within bounds, with the real decision. A write goes through the API server's
// loop: show the stored object, have it judged, commit if the object is still the one that was shown, else begin again. It
// is judged by a replica's copy of the lease, of any age, and where that is not enough by a read.

const (
	mostLeaders      = 3
	mostAcquisitions = 3
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

// kind is what a write does, and how it carries its token.
type kind number

const (
	updates    kind = iota // of the main resource, by a changed annotation
	carries                // of the main resource, by request
	inherits               // of the main resource, with the annotation as it is stored
	writeState             // of the status, which moves no mark
	removes
	creates
)

func (k kind) String() string {
	return [...]string{"an update", "an update by request", "an update that inherits the mark", "a status write", "a delete", "a create"}[k]
}

type writer struct {
	generation number // of the last acquisition, also after the term ended; 0 if there was none
	phase      phase
	kind       kind
	writes     number // begun
	token      number // generation under which the write in flight was computed
	ended      bool   // its term was over when the request arrived
	version    number // of the object as shown
	mark       stamp
}

// world is one state. It is comparable, so that no state is explored twice.
type world struct {
	history [mostAcquisitions*2 + 1]possession // of the lease; the last one is in force
	length  number
	exists  bool
	mark    stamp
	last    number // generation of the last committed write to the object, whether or not it moved the mark
	version number // goes on also while the object does not exist
	writers [mostLeaders]writer
}

func (w world) lease() possession { return w.history[w.length-1] }

// rules are the bounds of an exploration, and what it leaves in force.
type rules struct {
	leaders, acquisitions, writes number
	kinds                         []kind
	decide                        func(fence.Write, fence.View) fence.Verdict
	// staleReads lets the lease be read as it was at any time: a replica that believes an old copy to be fresh.
	staleReads bool
	// blindRetry commits after a conflict without asking admission again.
	blindRetry bool
}

// exploration is the outcome: how much was seen, and the first violation with the steps that led to it.
type exploration struct {
	rules                                rules
	states, commits, conflicts, refusals int
	committed                            map[kind]int
	violation                            string
	// verdicts are those given already: the decision is pure.
	verdicts map[question]fence.Verdict
}

// question is what a verdict depends on.
type question struct {
	kind            kind
	presented, mark stamp
	read            possession
	origin          fence.Origin
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
	e := &exploration{rules: r, verdicts: map[question]fence.Verdict{}, committed: map[kind]int{}}
	var reached []origin
	seen := map[world]bool{}
	for _, exists := range []bool{true, false} {
		start := world{length: 1, exists: exists}
		start.history[0] = possession{holder: nobody}
		reached, seen[start] = append(reached, origin{step{next: start, leader: 0, action: "begins with an object", argument: number(len(reached))}, -1}), true
	}
	for at := 0; at < len(reached) && e.violation == ""; at++ {
		for _, s := range e.steps(reached[at].step.next) {
			if s.violation != "" {
				path := []string{s.String() + ": " + s.violation}
				for back := at; back >= 0; back = reached[back].before {
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
	for i := range e.rules.leaders {
		me := at.writers[i]
		do := func(action string, argument number, next world, mine writer) {
			next.writers[i] = mine
			out = append(out, step{next: next, leader: i, action: action, argument: argument})
		}
		lease := at.lease()
		// A lease expires while its holder believes to lead: anybody may acquire at any time. That A is the first one leaves
		// nothing out, as leaders differ in nothing but their names.
		if lease.generation < e.rules.acquisitions && (i == 0 || lease.generation > 0) {
			next, mine := at.with(possession{lease.generation + 1, i}), me
			mine.generation = lease.generation + 1
			do("acquires", mine.generation, next, mine)
		}
		// A release is of one's own term only.
		if lease.holder == i && lease.generation == me.generation {
			do("releases", lease.generation, at.with(possession{lease.generation, nobody}), me)
		}
		done := writer{generation: me.generation, writes: me.writes}
		switch me.phase {
		case idle:
			if me.generation == 0 || me.writes == e.rules.writes {
				continue
			}
			for _, k := range e.rules.kinds {
				mine := me
				mine.phase, mine.kind, mine.token = sent, k, me.generation
				mine.ended = lease.generation != me.generation || lease.holder == nobody
				mine.writes++
				do("sends "+k.String()+" under", mine.token, at, mine)
			}
		case sent:
			if at.exists == (me.kind == creates) {
				do("is answered that the object is not found, or there already, under", me.token, at, done)
				continue
			}
			mine := me
			mine.phase, mine.version, mine.mark = shown, at.version, at.mark
			do("is shown the object with mark", mine.mark.generation, at, mine)
		case shown:
			mine := me
			mine.phase = admitted
			var answers [2]bool
			for copied := range at.length {
				reads := at.history[at.length-1 : at.length]
				if e.rules.staleReads {
					reads = at.history[:at.length]
				}
				for _, read := range reads {
					answers[btoi(e.admits(i, me, at.history[copied], read))] = true
				}
			}
			if answers[1] {
				do("is admitted under", me.token, at, mine)
			}
			if answers[0] {
				e.refusals++
				do("is refused under", me.token, at, done)
			}
		case admitted:
			changed := me.version != at.version || at.exists == (me.kind == creates)
			if changed && (!e.rules.blindRetry || at.exists == (me.kind == creates)) {
				e.conflicts++
				mine := me
				mine.phase, mine.version, mine.mark = sent, 0, stamp{}
				do("meets a conflict under", me.token, at, mine)
				continue
			}
			e.commits++
			e.committed[me.kind]++
			next := at
			next.version, next.last = at.version+1, me.token
			switch me.kind {
			case updates, carries, creates:
				next.exists, next.mark = true, presented(i, me)
			case removes:
				next.exists, next.mark, next.last = false, stamp{}, 0
			case inherits, writeState:
			}
			do("commits "+me.kind.String()+" under", me.token, next, done)
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

// broken says which promise a commit breaks. A create meets no older write.
func (e *exploration) broken(at world, me writer) string {
	switch {
	case me.kind != creates && me.token < at.last:
		return fmt.Sprintf("generation %d replaces %d", me.token, at.last)
	case !e.rules.staleReads && me.ended:
		return fmt.Sprintf("a write under %d arrived after its term was over, and lands", me.token)
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

// admits asks a replica: by its copy, and by a read if that is not enough.
func (e *exploration) admits(leader number, me writer, copied, read possession) bool {
	verdict := e.decide(question{me.kind, presented(leader, me), me.mark, copied, fence.Cached})
	if verdict.Outcome == fence.NeedsRead {
		verdict = e.decide(question{me.kind, presented(leader, me), me.mark, read, fence.Linearizable})
	}
	return verdict.Admits()
}

func (e *exploration) decide(q question) fence.Verdict {
	answer, known := e.verdicts[q]
	if known {
		return answer
	}
	lease := fence.Lease{Namespace: "reports", Name: "report-writer", Generation: int64(q.read.generation)}
	if q.read.generation > 0 {
		lease.Term = termOf(q.read.generation)
	}
	if q.read.holder != nobody {
		lease.Holder = string(rune('A' + q.read.holder))
	}
	stored, token := q.mark.String(), q.presented.String()
	var w fence.Write
	switch q.kind {
	case updates:
		w = update(marked(stored), marked(token))
	case carries:
		w = update(marked(stored), marked(token), carrying(token)) // the policy has stamped it
	case inherits:
		w = update(marked(stored), marked(stored))
	case writeState:
		w = status(marked(stored), marked(token))
	case removes:
		w = remove(marked(stored), carrying(token))
	case creates:
		w = create(marked(token))
	}
	answer = e.rules.decide(w, fence.View{Lease: lease, Origin: q.origin, MustPresent: true, SealCovers: true})
	e.verdicts[q] = answer
	return answer
}

// ignoringMarks is the decision with its comparison with the mark taken out.
func ignoringMarks(w fence.Write, v fence.View) fence.Verdict {
	if w.Old != nil {
		w.Old = marked("")
	}
	return fence.Decide(w, v)
}

// onAnyLease is the decision with a change of the lease that it sees.
func onAnyLease(change func(*fence.View)) func(fence.Write, fence.View) fence.Verdict {
	return func(w fence.Write, v fence.View) fence.Verdict {
		change(&v)
		return fence.Decide(w, v)
	}
}

// everyKind are all writes that present a token, and the one that only seems to.
func everyKind() []kind { return []kind{updates, carries, inherits, writeState, removes, creates} }

func TestNoInterleavingLetsACommittedGenerationFall(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]rules{
		"two leaders, two acquisitions, two writes of any kind each": {
			leaders: 2, acquisitions: 2, writes: 2, kinds: everyKind(), decide: fence.Decide},
		"two leaders, three acquisitions, a write of any kind each": {
			leaders: 2, acquisitions: 3, writes: 1, kinds: everyKind(), decide: fence.Decide},
		"two leaders, three acquisitions, two updates or status writes each": {
			leaders: 2, acquisitions: 3, writes: 2, kinds: []kind{updates, writeState}, decide: fence.Decide},
		"three leaders, an update or status write each": {
			leaders: 3, acquisitions: 3, writes: 1, kinds: []kind{updates, writeState}, decide: fence.Decide},
		"updates, also if the lease is read as it was at any time": {
			leaders: 2, acquisitions: 3, writes: 2, kinds: []kind{updates}, decide: fence.Decide, staleReads: true},
		"by the lease alone, if every conflict is judged again": {
			leaders: 2, acquisitions: 3, writes: 2, kinds: []kind{updates}, decide: ignoringMarks},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := explore(r)
			t.Logf("%d states, %d commits, %d conflicts, %d refusals", got.states, got.commits, got.conflicts, got.refusals)
			if got.violation != "" {
				t.Errorf("violated by:\n%s", got.violation)
			}
			for _, k := range r.kinds {
				if (got.committed[k] == 0) != (k == inherits) {
					t.Errorf("%s commits %d times", k, got.committed[k])
				}
			}
			if got.conflicts == 0 || got.refusals == 0 {
				t.Error("the exploration never conflicts or never refuses")
			}
		})
	}
}

// The exploration finds what each part of the argument keeps out once that part is taken away.
func TestTheExplorationFindsViolations(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]rules{
		"without the mark, an old reading of the lease admits":   {kinds: []kind{updates}, decide: ignoringMarks, staleReads: true},
		"without a second admission, a conflict commits blindly": {kinds: []kind{updates}, decide: fence.Decide, blindRetry: true},
		"without any fence": {kinds: []kind{updates}, decide: func(fence.Write, fence.View) fence.Verdict {
			return fence.Verdict{Outcome: fence.Allow, Reason: fence.NotSubject}
		}},
		"an inherited annotation taken for a token": {kinds: []kind{updates, inherits}, decide: func(w fence.Write, v fence.View) fence.Verdict {
			if w.Old != nil && w.New != nil && w.Old.Annotations[tokenKey] == w.New.Annotations[tokenKey] {
				carrying(w.Old.Annotations[tokenKey])(&w)
			}
			return fence.Decide(w, v)
		}},
		"a copy of the lease that admits":         {kinds: []kind{updates}, decide: onAnyLease(func(v *fence.View) { v.Origin = fence.Linearizable })},
		"a copy of the lease that admits creates": {kinds: []kind{creates}, decide: onAnyLease(func(v *fence.View) { v.Origin = fence.Linearizable })},
		"a release that is not looked at":         {kinds: []kind{updates}, decide: onAnyLease(func(v *fence.View) { v.Lease.Holder = "A" })},
		"the lease's generation not compared": {kinds: []kind{removes}, decide: func(w fence.Write, v fence.View) fence.Verdict {
			if text := w.Writer.Extra[tokenKey][0]; text != "" {
				v.Lease.Generation, v.Lease.Term = int64(text[0]-'0'), text[2:10]
			}
			return fence.Decide(w, v)
		}},
		"status writes by an old reading of the lease, which no mark stops": {kinds: []kind{writeState}, decide: fence.Decide, staleReads: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.leaders, r.acquisitions, r.writes = 2, 3, 2
			got := explore(r)
			if got.violation == "" {
				t.Fatalf("no violation in %d states", got.states)
			}
			t.Logf("found after %d states:\n%s", got.states, got.violation)
		})
	}
}
