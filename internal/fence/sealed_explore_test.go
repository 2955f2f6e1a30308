// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
)

// Leaders, a controller that seals, and replicas whose copy of the lease is as old as it likes: every interleaving of
// acquisitions, releases, seals, writes, creates and deletes of one object within bounds, with the real decision. A replica
// judges by any state that the lease ever had, and reads the present one where the decision asks for it.

// sealBounds limit an exploration.
type sealBounds struct {
	leaders, acquisitions, writes number
	acts                          []sealAct
	// noReleases makes room for more of the rest.
	noReleases bool
}

const (
	mostSealLeaders = 3
	mostSealHistory = 20
)

// sealPossession is one state of the lease.
type sealPossession struct {
	generation, sealed number
	holder             number
	handsOverBySeal    bool
	required           bool
}

// ready reports whether the holder may write.
func (p sealPossession) ready() bool { return !p.required || p.sealed == p.generation }

// sealAct is what a write does.
type sealAct number

const (
	actUpdate sealAct = iota
	actCreate
	actDelete
	actStatus
)

func (a sealAct) String() string {
	return [...]string{"an update", "a create", "a delete", "a status write"}[a]
}

// sealWriter is a leader with its write.
type sealWriter struct {
	generation, writes number
	phase              phase
	act                sealAct
	token              number
	// firm is the generation that was firm when the request arrived; see sealWorld.firm.
	firm    number
	version number
	mark    stamp
}

// sealObject is the guarded object. The version goes on also while it does not exist.
type sealObject struct {
	exists  bool
	mark    stamp
	version number
	// writer is the highest token of a write that was committed. A status write moves no mark, so the mark does not tell.
	writer number
	// late says that a create of an older generation has committed after the seal had listed the objects, and nothing has
	// moved its mark since.
	late bool
}

// sealController is the seal in progress: what it has seen of the object.
type sealController struct {
	generation number // sealed for; 0 while it does nothing
	listed     bool
	exists     bool
	mark       stamp
	version    number
}

// sealWorld is one state. It is comparable, so that no state is explored twice.
type sealWorld struct {
	history    [mostSealHistory]sealPossession
	length     number
	object     sealObject
	writers    [mostSealLeaders]sealWriter
	controller sealController
}

func (w sealWorld) lease() sealPossession { return w.history[w.length-1] }

func (w sealWorld) with(p sealPossession) sealWorld {
	w.history[w.length] = p
	w.length++
	return w
}

// firm is the highest generation whose holder was ready to write at some time: from then on no older write may begin.
func (w sealWorld) firm() number {
	var firm number
	for _, p := range w.history[:w.length] {
		if p.generation > firm && p.ready() {
			firm = p.generation
		}
	}
	return firm
}

// sealRules are what an exploration leaves in force.
type sealRules struct {
	bounds sealBounds
	// view is what a replica takes from its copy.
	decide func(fence.Write, fence.View) fence.Verdict
	// forgetful acquisitions look at their own strategy only when they say whether a seal is required.
	forgetful bool
	// blindSeal says that a term is sealed without stamping.
	blindSeal bool
	// lateAreStrict counts what is said to be an exception.
	lateAreStrict bool
}

type sealStep struct {
	next      sealWorld
	action    sealAction
	violation string
}

// sealAction is written only if somebody reads it: there are millions.
type sealAction struct {
	format string
	leader number
	number number
}

func (a sealAction) String() string {
	text := fmt.Sprintf(a.format, a.number)
	if a.leader != nobody {
		text = string(rune('A'+a.leader)) + ": " + text
	}
	return text
}

// sealExploration keeps what was seen.
type sealExploration struct {
	rules                                            sealRules
	commits, conflicts, refusals, unread, late, seal int
	verdicts                                         map[sealQuestion]fence.Verdict
}

type sealQuestion struct {
	act             sealAct
	presented, mark stamp
	read            sealPossession
	origin          fence.Origin
}

func newSealExploration(r sealRules) *sealExploration {
	if r.decide == nil {
		r.decide = fence.Decide
	}
	return &sealExploration{rules: r, verdicts: map[sealQuestion]fence.Verdict{}}
}

// start is a world with an object, without a mark, and a lease that was never held; or without the object.
func sealStart(exists bool) sealWorld {
	w := sealWorld{length: 1, object: sealObject{exists: exists}}
	w.history[0] = sealPossession{holder: nobody}
	return w
}

// sealing is the highest generation for which the objects have been listed.
func (w sealWorld) sealing() number {
	if w.controller.listed {
		return max(w.lease().sealed, w.controller.generation)
	}
	return w.lease().sealed
}

func (e *sealExploration) steps(at sealWorld) []sealStep {
	var out []sealStep
	do := func(next sealWorld, leader number, format string, argument number) {
		out = append(out, sealStep{next: next, action: sealAction{format, leader, argument}})
	}
	lease := at.lease()
	for i := range e.rules.bounds.leaders {
		me := at.writers[i]
		// A lease expires while its holder believes to lead: anybody may acquire, also before a seal is done. That A is the
		// first one leaves nothing out, as leaders differ in nothing but their names.
		if lease.generation < e.rules.bounds.acquisitions && at.length < mostSealHistory-2 && (i == 0 || lease.generation > 0) {
			for _, bySeal := range []bool{false, true} {
				// The rule of the CRD.
				required := bySeal || !e.rules.forgetful && (lease.handsOverBySeal || !lease.ready())
				next := at.with(sealPossession{
					generation: lease.generation + 1, sealed: lease.sealed, holder: i, handsOverBySeal: bySeal, required: required,
				})
				next.writers[i].generation = lease.generation + 1
				do(next, i, map[bool]string{true: "acquires %d and hands over by seal", false: "acquires %d and hands over lazily"}[bySeal], lease.generation+1)
			}
		}
		if !e.rules.bounds.noReleases && lease.holder == i && lease.generation == me.generation && at.length < mostSealHistory-2 {
			released := lease
			released.holder = nobody
			do(at.with(released), i, "releases %d", lease.generation)
		}
		switch me.phase {
		case idle:
			// The library holds writes back until the term is ready; a writer without it does not.
			if me.generation > 0 && me.writes < e.rules.bounds.writes {
				for _, act := range e.rules.bounds.acts {
					next := at
					mine := &next.writers[i]
					mine.phase, mine.act, mine.token, mine.firm = sent, act, me.generation, at.firm()
					mine.writes++
					do(next, i, act.String()+" is sent under %d", me.generation)
				}
			}
		case sent:
			next := at
			mine := &next.writers[i]
			if at.object.exists == (me.act == actCreate) {
				*mine = sealWriter{generation: me.generation, writes: me.writes} // not found, or there already
			} else {
				mine.phase, mine.version, mine.mark = shown, at.object.version, at.object.mark
			}
			do(next, i, "is shown the object with mark %d", at.object.mark.generation)
		case shown:
			var answers [2]bool
			for age := range at.length {
				answers[btoi(e.admits(me, i, at.history[age], lease))] = true
			}
			if answers[1] {
				next := at
				next.writers[i].phase = admitted
				do(next, i, "is admitted at mark %d", me.mark.generation)
			}
			if answers[0] {
				e.refusals++
				next := at
				next.writers[i] = sealWriter{generation: me.generation, writes: me.writes}
				do(next, i, "is refused under %d", me.token)
			}
		case admitted:
			out = append(out, e.commit(at, i))
		}
	}
	return append(out, e.seals(at)...)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// commit stores a write if the object is still as it was shown; a create needs it to be absent and nothing more.
func (e *sealExploration) commit(at sealWorld, i number) sealStep {
	me, next := at.writers[i], at
	if me.act == actCreate && at.object.exists || me.act != actCreate && at.object.version != me.version {
		e.conflicts++
		next.writers[i].phase = sent
		return sealStep{next: next, action: sealAction{"meets a conflict under %d", i, me.token}}
	}
	e.commits++
	next.writers[i] = sealWriter{generation: me.generation, writes: me.writes}
	next.object.version++
	switch me.act {
	case actDelete:
		next.object = sealObject{version: next.object.version}
	case actStatus:
		next.object.writer = max(at.object.writer, me.token)
	default:
		next.object.exists, next.object.mark, next.object.writer = true, presentedBy(i, me), max(at.object.writer, me.token)
		next.object.late = me.token < at.sealing()
	}
	step := sealStep{next: next, action: sealAction{me.act.String() + " commits under %d", i, me.token}}
	excepted := !e.rules.lateAreStrict && (me.act == actCreate || at.object.late)
	switch {
	case at.object.exists && me.token < at.object.mark.generation:
		step.violation = fmt.Sprintf("generation %d replaces %d", me.token, at.object.mark.generation)
	case at.object.exists && me.token < at.object.writer && !excepted:
		step.violation = fmt.Sprintf("a write under %d follows one under %d", me.token, at.object.writer)
	case me.token < at.lease().sealed && !excepted:
		step.violation = fmt.Sprintf("a write under %d commits after %d was sealed", me.token, at.lease().sealed)
	case me.token < me.firm && (!at.object.late || e.rules.lateAreStrict):
		step.violation = fmt.Sprintf("a write under %d arrived when the holder of %d was ready, and lands", me.token, me.firm)
	case me.token < at.lease().sealed:
		e.late++
	}
	return step
}

// seals are the steps of the controller: look, stamp if the object is as it was seen, record. What appears later with an
// older mark is stamped as well.
func (e *sealExploration) seals(at sealWorld) []sealStep {
	lease, c := at.lease(), at.controller
	next := at
	switch {
	case c.generation != 0 && c.generation != lease.generation:
		// The lease was acquired anew: begin again.
		next.controller = sealController{}
		return []sealStep{{next: next, action: sealAction{"the seal is given up for %d", nobody, lease.generation}}}
	case lease.required && lease.sealed != lease.generation && e.rules.blindSeal:
		lease.sealed = lease.generation
		return []sealStep{{next: at.with(lease), action: sealAction{"sealed blindly %d", nobody, lease.generation}}}
	case lease.required && lease.sealed != lease.generation && !c.listed:
		next.controller = sealController{lease.generation, true, at.object.exists, at.object.mark, at.object.version}
		return []sealStep{{next: next, action: sealAction{"the seal of %d lists the object", nobody, lease.generation}}}
	case c.listed && c.exists && c.mark.generation < c.generation:
		if at.object.version != c.version {
			next.controller.listed = false
			return []sealStep{{next: next, action: sealAction{"the seal meets a conflict under %d", nobody, lease.generation}}}
		}
		e.seal++
		next.object.mark, next.object.late = stamp{generation: c.generation, leader: nobody}, false
		next.object.version++
		next.controller.mark, next.controller.version = next.object.mark, next.object.version
		return []sealStep{{next: next, action: sealAction{"the seal stamps %d", nobody, c.generation}}}
	case c.listed && at.length < mostSealHistory-1:
		lease.sealed = c.generation
		next = at.with(lease)
		next.controller = sealController{}
		return []sealStep{{next: next, action: sealAction{"sealed %d", nobody, c.generation}}}
	case lease.required && lease.sealed == lease.generation && at.object.exists && at.object.mark.generation < lease.generation:
		next.object.mark, next.object.late = stamp{generation: lease.generation, leader: nobody}, false
		next.object.version++
		return []sealStep{{next: next, action: sealAction{"what is late is stamped %d", nobody, lease.generation}}}
	default:
		return nil
	}
}

func presentedBy(leader number, me sealWriter) stamp { return stamp{me.token, leader, me.writes} }

// admits asks a replica: first by its copy, then, if that is not enough, by a read.
func (e *sealExploration) admits(me sealWriter, leader number, copied, stored sealPossession) bool {
	verdict := e.decide(sealQuestion{me.act, presentedBy(leader, me), me.mark, copied, fence.Cached})
	if verdict.Outcome == fence.NeedsRead {
		return e.decide(sealQuestion{me.act, presentedBy(leader, me), me.mark, stored, fence.Linearizable}).Admits()
	}
	if verdict.Admits() {
		e.unread++
	}
	return verdict.Admits()
}

func (e *sealExploration) decide(q sealQuestion) fence.Verdict {
	answer, known := e.verdicts[q]
	if known {
		return answer
	}
	lease := fence.Lease{
		Namespace: "reports", Name: "report-writer", Generation: int64(q.read.generation), SealedGeneration: int64(q.read.sealed),
		Handover: v1alpha1.HandoverLazy,
	}
	if q.read.handsOverBySeal {
		lease.Handover = v1alpha1.HandoverSeal
	}
	if q.read.required {
		lease.Seal = v1alpha1.SealRequired
	}
	if q.read.generation > 0 {
		lease.Term = termOf(q.read.generation)
	}
	if q.read.holder != nobody {
		lease.Holder = string(rune('A' + q.read.holder))
	}
	text := q.presented.String()
	var w fence.Write
	switch q.act {
	case actCreate:
		w = create(marked(text))
	case actDelete:
		w = remove(marked(sealText(q.mark)), carrying(text))
	case actStatus:
		w = status(marked(sealText(q.mark)), marked(sealText(q.mark)), carrying(text))
	default:
		w = update(marked(sealText(q.mark)), marked(text))
	}
	answer = e.rules.decide(w, fence.View{Lease: lease, Origin: q.origin, MustPresent: true, SealCovers: true})
	e.verdicts[q] = answer
	return answer
}

// sealText is the text of a mark; that of the controller names no operation.
func sealText(s stamp) string {
	if s.leader == nobody {
		return fmt.Sprintf("%d.%s", s.generation, termOf(s.generation))
	}
	return s.String()
}

// exhaust goes through every state that can be reached, and returns how many, and the first violation with the steps to it.
func (e *sealExploration) exhaust() (states int, violation string) {
	type origin struct {
		world  sealWorld
		action sealAction
		before int
	}
	var reached []origin
	seen := map[sealWorld]bool{}
	for _, exists := range []bool{true, false} {
		start := sealStart(exists)
		reached, seen[start] = append(reached, origin{start, sealAction{"objects that exist: %d", nobody, number(btoi(exists))}, -1}), true
	}
	for at := 0; at < len(reached); at++ {
		for _, s := range e.steps(reached[at].world) {
			if s.violation != "" {
				path := []string{s.action.String() + ": " + s.violation}
				for back := at; back >= 0; back = reached[back].before {
					path = append(path, reached[back].action.String())
				}
				slices.Reverse(path)
				return len(reached), strings.Join(path, "\n")
			}
			if !seen[s.next] {
				seen[s.next] = true
				reached = append(reached, origin{s.next, s.action, at})
			}
		}
	}
	return len(reached), ""
}

func (e *sealExploration) seen() string {
	return fmt.Sprintf("%d commits (%d late), %d conflicts, %d refusals, %d stamps, %d verdicts without a read",
		e.commits, e.late, e.conflicts, e.refusals, e.seal, e.unread)
}

// The promise of Seal: once sealedGeneration has reached a generation, no write under an older one commits, however old
// the copies are by which replicas judge; and a holder that is ready is ready for good, whichever way it was handed the
// lease. The exception is a create that was on its way: it may commit, and be written until it is stamped.
func TestNoInterleavingLetsAnOlderWriteLandAfterTheSeal(t *testing.T) {
	t.Parallel()
	for name, bounds := range map[string]sealBounds{
		"two acquisitions, two updates or creates each, no releases": {2, 2, 2, []sealAct{actUpdate, actCreate}, true},
		"two acquisitions, a write of any kind each":                 {2, 2, 1, []sealAct{actUpdate, actCreate, actDelete}, false},
		"three acquisitions, an update each, no releases":            {2, 3, 1, []sealAct{actUpdate}, true},
		"two acquisitions, two updates or status writes each":        {2, 2, 2, []sealAct{actUpdate, actStatus}, false},
		"three acquisitions, a status write or an update each":       {2, 3, 1, []sealAct{actUpdate, actStatus}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newSealExploration(sealRules{bounds: bounds})
			states, violation := e.exhaust()
			t.Logf("%d states, %s", states, e.seen())
			if violation != "" {
				t.Errorf("violated by:\n%s", violation)
			}
			late := e.late > 0 || !slices.Contains(bounds.acts, actCreate)
			if e.commits == 0 || e.conflicts == 0 || e.refusals == 0 || e.seal == 0 || e.unread == 0 || !late {
				t.Error("the exploration does not reach everything that it is about")
			}
		})
	}
}

// Longer stories than can be gone through completely.
func TestPropertyNoOlderWriteLandsAfterTheSeal(t *testing.T) {
	t.Parallel()
	e := newSealExploration(sealRules{bounds: sealBounds{mostSealLeaders, 6, 8, []sealAct{actUpdate, actStatus, actCreate, actDelete}, false}})
	rapid.Check(t, func(t *rapid.T) {
		at := sealStart(rapid.Bool().Draw(t, "exists"))
		for range rapid.IntRange(1, 120).Draw(t, "length") {
			steps := e.steps(at)
			if len(steps) == 0 {
				return
			}
			s := steps[rapid.IntRange(0, len(steps)-1).Draw(t, "step")]
			if s.violation != "" {
				t.Fatalf("%s: %s", s.action, s.violation)
			}
			t.Log(s.action.String())
			at = s.next
		}
	})
	if e.unread == 0 || e.seal == 0 {
		t.Errorf("the stories seal nothing or read always: %s", e.seen())
	}
}

// The exploration finds what each part of the argument keeps out once that part is taken away.
func TestTheExplorationOfSealsFindsViolations(t *testing.T) {
	t.Parallel()
	small := sealBounds{2, 2, 2, []sealAct{actUpdate, actCreate, actDelete, actStatus}, true}
	onCopies := func(change func(*fence.Write, *fence.View)) func(fence.Write, fence.View) fence.Verdict {
		return func(w fence.Write, v fence.View) fence.Verdict {
			if v.Origin == fence.Cached {
				w.Old = cloneObject(w.Old)
				change(&w, &v)
			}
			return fence.Decide(w, v)
		}
	}
	for name, r := range map[string]sealRules{
		"a path without reads in lazy terms": {decide: onCopies(func(_ *fence.Write, v *fence.View) {
			v.Lease.Handover, v.Lease.SealedGeneration = v1alpha1.HandoverSeal, v.Lease.Generation
		})},
		"a path without reads that does not ask for the mark": {decide: onCopies(func(w *fence.Write, v *fence.View) {
			if w.Operation == fence.Update && v.Lease.Generation > 0 {
				w.Old.Annotations[tokenKey] = v.Lease.Token().String()
			}
		})},
		"a holder that may write before the seal": {decide: func(w fence.Write, v fence.View) fence.Verdict {
			v.Lease.Seal = v1alpha1.SealNotRequired
			return fence.Decide(w, v)
		}},
		"a path without reads for deletes": {decide: onCopies(func(w *fence.Write, v *fence.View) {
			if w.Operation == fence.Delete && v.Lease.Generation > 0 {
				w.Operation, w.New = fence.Update, marked(w.Writer.Extra[tokenKey][0])
				w.Old.Annotations[tokenKey] = v.Lease.Token().String()
			}
		})},
		"a path without reads for creates": {decide: onCopies(func(w *fence.Write, v *fence.View) {
			if w.Operation == fence.Create && v.Lease.Generation > 0 {
				w.Operation, w.Old = fence.Update, marked(v.Lease.Token().String())
			}
		})},
		"a term that is not begun with a seal": {forgetful: true},
		"a seal that leaves marks":             {blindSeal: true},
		"a late create counted as any other":   {lateAreStrict: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.bounds = small
			states, violation := newSealExploration(r).exhaust()
			if violation == "" {
				t.Fatalf("no violation in %d states", states)
			}
			t.Logf("found after %d states:\n%s", states, violation)
		})
	}
}
