// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/test/robustness/history"
	"github.com/fencedlease/fencedlease/test/robustness/index"
	"github.com/fencedlease/fencedlease/test/robustness/validate"
)

func TestChecks(t *testing.T) {
	// Each story begins with A under 33, who creates the object.
	begin := func(handover string) *story {
		s := newStory(handover).acquired(10, 33, "a")
		if handover == seal {
			s.sealed(15)
		}
		return s.write(1, history.Create, 33, "a", 20, 30)
	}
	for name, c := range map[string]struct {
		story *story
		want  []string
	}{
		"a handover": {story: begin(lazy).released(40).acquired(50, 34, "b").write(2, history.MergePatch, 34, "b", 60, 70)},
		"a late write is refused": {story: begin(lazy).acquired(50, 34, "b").
			refused(2, history.MergePatch, 33, "a", "StaleToken", 60, 70)},
		"a write in flight at the handover commits before the first write of the new holder: the window": {
			story: begin(lazy).acquired(50, 34, "b").write(2, history.MergePatch, 33, "a", 40, 60).write(3, history.MergePatch, 34, "b", 55, 70)},
		"a write in flight at the handover commits after the first write of the new holder": {
			story: begin(lazy).acquired(50, 34, "b").write(3, history.MergePatch, 34, "b", 55, 60).write(2, history.MergePatch, 33, "a", 40, 70),
			want:  []string{neverFalls, linear}},
		"the same for its status, which keeps the mark": {
			story: begin(lazy).acquired(50, 34, "b").write(3, history.PatchStatus, 34, "b", 55, 60).write(2, history.PatchStatus, 33, "a", 40, 70),
			want:  []string{neverFalls, linear}},
		"the same for its delete": {
			story: begin(lazy).acquired(50, 34, "b").write(3, history.MergePatch, 34, "b", 55, 60).write(2, history.Delete, 33, "a", 40, 70),
			want:  []string{neverFalls, linear}},
		"a write that was sent after the handover commits": {
			story: begin(lazy).acquired(50, 34, "b").write(2, history.MergePatch, 33, "a", 60, 70),
			want:  []string{noLate, linear}},
		"a write that was sent after the release commits": {
			story: begin(lazy).released(50).write(2, history.MergePatch, 33, "a", 60, 70),
			want:  []string{noLate, linear}},
		"a create in flight at the handover is late": {
			story: newStory(lazy).acquired(10, 33, "a").acquired(50, 34, "b").write(2, history.Create, 33, "a", 40, 70)},
		"a create that was sent after the handover commits": {
			story: newStory(lazy).acquired(10, 33, "a").acquired(50, 34, "b").write(2, history.Create, 33, "a", 60, 70),
			want:  []string{noLate, linear}},
		"an unanswered write was applied": {story: func() *story {
			s := begin(lazy)
			return s.commits(s.op(2, history.MergePatch, 33, "a", 40, history.Never, history.Unknown), 45).acquired(50, 34, "b")
		}()},
		"an unanswered write was applied after the first write of the new holder": {story: func() *story {
			s := begin(lazy)
			late := s.op(2, history.MergePatch, 33, "a", 40, history.Never, history.Unknown)
			return s.acquired(50, 34, "b").write(3, history.MergePatch, 34, "b", 60, 70).commits(late, 80)
		}(), want: []string{neverFalls, linear}},
		"one of two unanswered deletes was applied, and one of them may": {story: func() *story {
			s := begin(lazy)
			s.op(2, history.Delete, 33, "a", 60, history.Never, history.Unknown)
			return s.acquired(50, 34, "b").commits(s.op(3, history.Delete, 34, "b", 65, history.Never, history.Unknown), 80)
		}()},
		"one of two unanswered deletes was applied, admitted before the handover": {story: func() *story {
			s := begin(lazy)
			s.op(2, history.Delete, 33, "a", 40, history.Never, history.Unknown)
			return s.acquired(50, 34, "b").commits(s.op(3, history.Delete, 33, "a", 60, history.Never, history.Unknown), 80)
		}()},
		"one of two unanswered deletes was applied, and none of them may": {story: func() *story {
			s := begin(lazy)
			s.op(2, history.Delete, 33, "a", 60, history.Never, history.Unknown)
			return s.acquired(50, 34, "b").commits(s.op(3, history.Delete, 33, "a", 65, history.Never, history.Unknown), 80)
		}(), want: []string{noLate, linear}},
		"a collection lists what another one has deleted": {story: func() *story {
			s := begin(lazy).acquired(50, 34, "b").write(3, history.Delete, 34, "b", 60, 70)
			s.op(2, history.DeleteCollection, 33, "a", 61, 71, history.OK).Seen = []history.Seen{{Name: "o", UID: "u1"}}
			return s
		}()},
		"a collection has deleted what nobody else has": {story: func() *story {
			s := begin(lazy).acquired(50, 34, "b")
			s.op(2, history.DeleteCollection, 33, "a", 61, 71, history.OK).Seen = []history.Seen{{Name: "o", UID: "u1"}}
			return s.commits(&history.Op{Verb: history.Delete}, 70)
		}(), want: []string{noLate, linear}},
		"a holder asks for a deletion, and a client of an ended term deletes without a token": {
			story: begin(lazy).acquired(50, 34, "b").write(2, history.MergePatch, 34, "b", 55, 60).intended().write(3, history.Delete, 33, "a", 65, 70)},
		"an ended term has asked for a deletion, and its client deletes": {
			story: begin(lazy).write(2, history.MergePatch, 33, "a", 40, 45).intended().acquired(50, 34, "b").write(3, history.Delete, 33, "a", 65, 70),
			want:  []string{noLate, linear}},
		"a refused write is committed": {story: func() *story {
			s := begin(lazy)
			refused := s.op(2, history.MergePatch, 33, "a", 60, 70, history.Refused)
			refused.Cause = "StaleToken"
			return s.acquired(50, 34, "b").commits(refused, 70)
		}(), want: []string{consistent, noLate, linear}},
		"an accepted write is lost": {story: func() *story {
			s := begin(lazy)
			s.op(2, history.MergePatch, 33, "a", 40, 50, history.OK)
			return s
		}(), want: []string{consistent}},
		"somebody else writes": {story: func() *story {
			s := begin(lazy)
			s.commits(&history.Op{ID: 99, Verb: history.MergePatch, Generation: 33, Term: full("a")}, 50)
			return s
		}(), want: []string{consistent, neverFalls, noLate, linear}},
		"a write without a token commits": {
			story: begin(lazy).write(2, history.MergePatch, 0, "", 40, 50),
			want:  []string{neverFalls, noLate, linear}},
		"the mark is not the token": {story: func() *story {
			s := begin(lazy).write(2, history.MergePatch, 33, "a", 40, 50)
			s.object.Marks["n"] = "33." + full("x")
			return s
		}(), want: []string{markMoves}},
		"a holder is refused":             {story: begin(lazy).refused(2, history.MergePatch, 33, "a", "StaleToken", 40, 50), want: []string{justified, linear}},
		"a holder is refused by a policy": {story: begin(lazy).refused(2, history.MergePatch, 33, "a", "MarkTampered", 40, 50), want: []string{justified}},
		"a scale cannot carry an annotation": {
			story: begin(lazy).refused(2, history.Scale, 33, "a", "MissingToken", 40, 50)},
		"a generation falls":                       {story: begin(lazy).acquired(50, 32, "b"), want: []string{generations}},
		"two terms have one generation":            {story: begin(lazy).acquired(50, 33, "b"), want: []string{generations}},
		"a term changes its generation":            {story: begin(lazy).acquired(50, 34, "a"), want: []string{generations}},
		"a lease begins anew below":                {story: begin(lazy).leaseDeleted(40).leaseReady(50).acquired(60, 33, "b"), want: []string{generations}},
		"while a lease is deleted anybody writes":  {story: begin(lazy).leaseDeleted(40).write(2, history.MergePatch, 33, "a", 45, 55).leaseReady(50).acquired(60, 34, "b")},
		"after a lease is back nobody else writes": {story: begin(lazy).leaseDeleted(40).leaseReady(50).acquired(60, 34, "b").write(2, history.MergePatch, 33, "a", 65, 70), want: []string{noLate, linear}},
		"a read sees what is there":                {story: begin(lazy).read(2, 12, 40, 50)},
		"a read is stale":                          {story: begin(lazy).write(2, history.MergePatch, 33, "a", 40, 50).read(3, 12, 60, 70), want: []string{linear}},
		"a read misses an object":                  {story: begin(lazy).read(3, 0, 60, 70), want: []string{linear}},
		"Seal: all is stamped": {story: begin(seal).acquired(50, 34, "b").stamped(60).sealed(70).
			write(2, history.MergePatch, 34, "b", 80, 90).refused(3, history.MergePatch, 33, "a", "StaleToken", 80, 90)},
		"Seal: an update by the fast path commits until the seal": {
			story: begin(seal).acquired(50, 34, "b").write(2, history.MergePatch, 33, "a", 55, 60).stamped(65).sealed(70)},
		"Seal: a delete reads the lease, also before the seal": {
			story: begin(seal).acquired(50, 34, "b").write(2, history.Delete, 33, "a", 55, 60).sealed(70),
			want:  []string{noLate, linear}},
		"Seal: an update commits after the stamp": {
			story: begin(seal).acquired(50, 34, "b").stamped(60).write(2, history.MergePatch, 33, "a", 55, 65).sealed(70),
			want:  []string{neverFalls, afterSeal, linear}},
		"Seal: a holder writes before its term is sealed": {
			story: begin(seal).acquired(50, 34, "b").write(2, history.PatchStatus, 34, "b", 55, 60).stamped(65).sealed(70),
			want:  []string{beforeSeal}},
		"Seal: a holder is held up until its term is sealed": {
			story: begin(seal).acquired(50, 34, "b").early(2, 55, 75).stamped(65).sealed(70)},
		"Seal: a holder is held up after its term was sealed": {
			story: begin(seal).acquired(50, 34, "b").stamped(65).sealed(70).early(2, 71, 75),
			want:  []string{justified}},
		"an intent to delete that is there already presents nothing": {story: func() *story {
			s := begin(lazy).refused(2, history.MergePatch, 33, "a", "MissingToken", 40, 50)
			s.run.Ops[len(s.run.Ops)-1].Intent = true
			return s
		}()},
		"Seal: a late create is written until it is stamped": {
			story: newStory(seal).acquired(10, 33, "a").sealed(15).acquired(50, 34, "b").sealed(60).write(2, history.Create, 33, "a", 40, 70).
				write(3, history.MergePatch, 33, "a", 45, 80).stamped(90)},
		"Seal: a late create is written after it was stamped": {
			story: newStory(seal).acquired(10, 33, "a").sealed(15).acquired(50, 34, "b").sealed(60).write(2, history.Create, 33, "a", 40, 70).
				stamped(75).write(3, history.MergePatch, 33, "a", 45, 80),
			want: []string{neverFalls, afterSeal, linear}},
		"Seal: an object was forgotten, and an update commits after the seal": {
			story: begin(seal).acquired(50, 34, "b").sealed(70).write(2, history.MergePatch, 33, "a", 75, 80),
			want:  []string{afterSeal}},
		"Seal: a late create is neither stamped nor reported": {story: func() *story {
			s := newStory(seal).acquired(10, 33, "a").sealed(15).acquired(50, 34, "b").sealed(60).write(2, history.Create, 33, "a", 40, 70)
			s.run.Meta.End = 20_000_000_000
			return s
		}(), want: []string{reported}},
		"Seal: a late create is stamped and reported": {story: func() *story {
			s := newStory(seal).acquired(10, 33, "a").sealed(15).acquired(50, 34, "b").sealed(60).write(2, history.Create, 33, "a", 40, 70).stamped(80)
			s.lease.Conditions = map[string]string{"LateCreate": "Reported: o"}
			s.changeLease(90).run.Meta.End = 20_000_000_000
			return s
		}()},
		"restore: what it undid may be done anew": {story: func() *story {
			s := begin(lazy)
			lease, object := s.lease, s.object
			return s.acquired(50, 34, "b").write(2, history.MergePatch, 34, "b", 60, 70).
				restored(100, lease, object, 12).write(3, history.MergePatch, 33, "a", 110, 120).acquired(130, 35, "c").write(4, history.MergePatch, 35, "c", 140, 150)
		}()},
		"restore: a term that it undid writes": {story: func() *story {
			s := begin(lazy)
			lease, object := s.lease, s.object
			return s.acquired(50, 34, "b").restored(100, lease, object, 12).write(3, history.MergePatch, 34, "b", 110, 120)
		}(), want: []string{noLate, linear}},
		"restore: a term that it undid writes under a generation that was handed out again": {story: func() *story {
			s := begin(lazy)
			lease, object := s.lease, s.object
			return s.acquired(50, 34, "b").restored(100, lease, object, 12).acquired(110, 34, "c").write(3, history.MergePatch, 34, "b", 120, 130)
		}(), want: []string{noLate, linear}},
		"restore: a term that it brought back is refused by those who remember": {story: func() *story {
			s := begin(lazy)
			lease, object := s.lease, s.object
			return s.acquired(50, 34, "b").restored(100, lease, object, 12).refused(3, history.MergePatch, 33, "a", "StaleToken", 110, 120)
		}()},
		"restore: a term that was never over is refused": {story: func() *story {
			s := begin(lazy)
			lease, object := s.lease, s.object
			return s.restored(100, lease, object, 12).refused(3, history.MergePatch, 33, "a", "StaleToken", 110, 120)
		}(), want: []string{justified, linear}},
		"a client has two calls in flight": {story: func() *story {
			s := begin(lazy)
			s.op(2, history.Get, 0, "", 40, 50, history.Unknown).Client = "c"
			s.op(3, history.Get, 0, "", 45, 55, history.Unknown).Client = "c"
			return s
		}(), want: []string{judgeable}},
		"a holder gets no answers and nothing is broken": {story: func() *story {
			s := begin(lazy)
			for i := range int64(3) {
				s.op(2+i, history.MergePatch, 33, "a", 40+10*i, 45+10*i, history.Unknown).Client = "p/c"
			}
			return s
		}(), want: []string{available}},
		"a holder gets no answers before the seal": {story: func() *story {
			s := newStory(seal)
			s.lease.Seal = "Required"
			s.acquired(10, 33, "a")
			for i := range int64(3) {
				s.op(2+i, history.MergePatch, 33, "a", 40+10*i, 45+10*i, history.Unknown).Client = "p/c"
			}
			return s.sealed(100)
		}()},
		"a holder gets no answers while something is broken": {story: func() *story {
			s := begin(lazy)
			for i := range int64(3) {
				s.op(2+i, history.MergePatch, 33, "a", 40+10*i, 45+10*i, history.Unknown).Client = "p/c"
			}
			s.run.Faults = append(s.run.Faults, history.Fault{Kind: "x", Begin: 35, End: 60})
			return s
		}()},
	} {
		t.Run(name, func(t *testing.T) {
			for place, run := range map[string]*history.Run{"in the lease's namespace": c.story.run, "elsewhere": elsewhere(c.story.run)} {
				if diff := cmp.Diff(c.want, failing(run)); diff != "" {
					t.Errorf("failing checks with objects %s (-want +got):\n%s\n%v", place, diff, index.New(run).Problems)
				}
			}
		})
	}
}

// A run that did little is no proof.
func TestAnIdleRunFails(t *testing.T) {
	x := index.New(newStory(lazy).acquired(10, 33, "a").write(1, history.Create, 33, "a", 20, 30).run)
	least := validate.Minimum{Operations: 2, Commits: 2, Handovers: 2, Late: 1, PerVerb: 1, PerCarrier: 1, Repetitions: 50, Restored: 1, Faults: []string{"SIGSTOP"}}
	// Operations, commits, handovers, late writes; all verbs but create; accepted by all carriers but annotation, and refused
	// by all but wrap; five kinds of repetitions, and two after a restore; the fault.
	want := 4 + 4 + (len(history.Writes()) - 1) + 3 + 4 + 1 + 3
	if found := validate.Preconditions(least).Run(x); len(found) != want {
		t.Errorf("want %d, got %d: %q", want, len(found), found)
	}
}
