// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/robustness/history"
	"github.com/fencedlease/fencedlease/test/robustness/index"
	"github.com/fencedlease/fencedlease/test/robustness/model"
	"github.com/fencedlease/fencedlease/test/robustness/validate"
)

// Names of the checks in the table below.
const (
	consistent  = "every commit has its operation, and every answer its commit"
	generations = "generations of a lease never fall, and change only with the term"
	neverFalls  = "committed generations on an object never fall"
	markMoves   = "the mark moves in the same commit"
	noLate      = "no write that was sent after its term had ended commits"
	beforeSeal  = "no write under a term commits before its seal"
	afterSeal   = "no write under an older generation commits after the seal of a newer one"
	justified   = "every refusal was justified"
	reported    = "every late create was stamped and reported"
	removed     = "the product deletes late creates only"
	available   = "no holder is kept from writing for longer than a fault lasts"
	judgeable   = "the run is one that can be judged"
	linear      = "porcupine"
)

var handmade = history.LeaseRef{Namespace: "n", Name: "n"}

// story is a small history that is written down. Times are milliseconds, and each change of the store takes a revision.
type story struct {
	run      *history.Run
	handover string
	revision int64
	epoch    int
	object   *history.ObjectState
	uid      int
	lease    history.LeaseState
	leaseUID int
}

// full makes a term of one letter one that is well formed.
func full(term string) string { return strings.Repeat(term, 8) }

func newStory(handover string) *story {
	s := &story{handover: handover, revision: 10, run: &history.Run{Meta: history.Meta{
		Leases: []history.Lease{{LeaseRef: handmade, Handover: handover, Objects: []string{"o"}}},
		Epochs: []history.Epoch{{Base: 10}}, End: 1_000_000,
	}}}
	s.lease = history.LeaseState{Floor: 1, Handover: handover, Ready: true}
	s.run.Truth = append(s.run.Truth, &history.Event{Revision: 5, Initial: true, Namespace: "n", Name: "n", UID: "l0", Lease: s.copyLease()})
	return s
}

func (s *story) copyLease() *history.LeaseState {
	l := s.lease
	return &l
}

func (s *story) event(at int64) *history.Event {
	s.revision++
	e := &history.Event{Epoch: s.epoch, Revision: s.revision, Observed: at, Namespace: "n"}
	s.run.Truth = append(s.run.Truth, e)
	return e
}

func (s *story) changeLease(at int64) *story {
	e := s.event(at)
	e.Name, e.UID, e.Lease = "n", "l"+strconv.Itoa(s.leaseUID), s.copyLease()
	return s
}

// acquired makes a term, whose generation was stored at the time.
func (s *story) acquired(at, generation int64, term string) *story {
	s.lease.Generation, s.lease.Term, s.lease.Holder, s.lease.Handover = generation, full(term), "h-"+term, s.handover
	if s.handover == seal {
		s.lease.Seal = string(v1alpha1.SealRequired)
	}
	return s.changeLease(at)
}

// early is a write of B's that is held up.
func (s *story) early(id, invoke, ret int64) *story {
	s.op(id, history.MergePatch, 34, "b", invoke, ret, history.Early).Cause = string(fence.SealPending)
	return s
}

// intended makes the last write of the object one that asks for its deletion.
func (s *story) intended() *story {
	s.object.Marks["n"] += "/" + token.OperationDelete
	return s
}

func (s *story) released(at int64) *story {
	s.lease.Holder = ""
	return s.changeLease(at)
}

func (s *story) sealed(at int64) *story {
	s.lease.SealedGeneration = s.lease.Generation
	return s.changeLease(at)
}

func (s *story) leaseDeleted(at int64) *story {
	s.changeLease(at)
	s.run.Truth[len(s.run.Truth)-1].Deleted = true
	s.leaseUID++
	s.lease = history.LeaseState{Floor: s.lease.Generation}
	return s
}

func (s *story) leaseReady(at int64) *story {
	s.lease.Ready = true
	return s.changeLease(at)
}

// uidNow is that of the object that is there.
func (s *story) uidNow() string { return "u" + strconv.Itoa(s.uid) }

// op is an operation by a token such as "33.a".
func (s *story) op(id int64, verb history.Verb, generation int64, term string, invoke, ret int64, outcome history.Outcome) *history.Op {
	op := &history.Op{
		ID: id, Client: "c" + strconv.FormatInt(id, 10), Lease: handmade, Object: "o", Verb: verb, Carrier: history.Annotation,
		Generation: generation, Term: full(term), Invoke: invoke, Return: ret, Outcome: outcome,
	}
	s.run.Ops = append(s.run.Ops, op)
	return op
}

// commits stores an operation, at once, with its token as the mark.
func (s *story) commits(op *history.Op, at int64) *story {
	e := s.event(at)
	e.Name = "o"
	next := history.ObjectState{Marks: map[string]string{"n": strconv.FormatInt(op.Generation, 10) + "." + op.Term}}
	if s.object == nil {
		s.uid++
		e.Created = true
	} else {
		next.Value, next.Result, next.Replicas = s.object.Value, s.object.Result, s.object.Replicas
	}
	e.UID = "u" + strconv.Itoa(s.uid)
	switch op.Verb {
	case history.Delete:
		e.Deleted, e.Object = true, s.object
		s.object = nil
		if op.Outcome == history.OK {
			op.Seen = []history.Seen{{Name: "o", UID: e.UID}}
		}
		return s
	case history.PatchStatus:
		next.Marks = s.object.Marks
		next.Result = strconv.FormatInt(op.ID, 10)
	default:
		next.Value = strconv.FormatInt(op.ID, 10)
	}
	s.object, e.Object = &next, &next
	if op.Outcome == history.OK {
		op.Seen = []history.Seen{{Name: "o", UID: e.UID, Revision: e.Revision}}
	}
	return s
}

// write is an operation that was accepted and committed between its call and its answer.
func (s *story) write(id int64, verb history.Verb, generation int64, term string, invoke, ret int64) *story {
	return s.commits(s.op(id, verb, generation, term, invoke, ret, history.OK), ret)
}

// stamped is a commit of the controller.
func (s *story) stamped(at int64) *story {
	e := s.event(at)
	next := *s.object
	next.Marks = map[string]string{"n": strconv.FormatInt(s.lease.Generation, 10) + "." + s.lease.Term}
	e.Name, e.UID, e.Object = "o", "u"+strconv.Itoa(s.uid), &next
	s.object = &next
	return s
}

func (s *story) refused(id int64, verb history.Verb, generation int64, term, cause string, invoke, ret int64) *story {
	op := s.op(id, verb, generation, term, invoke, ret, history.Refused)
	op.Cause = cause
	return s
}

func (s *story) read(id int64, revision, invoke, ret int64) *story {
	op := s.op(id, history.Get, 0, "", invoke, ret, history.OK)
	op.Carrier = ""
	if revision != 0 {
		op.Seen = []history.Seen{{Name: "o", UID: "u" + strconv.Itoa(s.uid), Revision: revision}}
	}
	return s
}

// restored turns everything back to what was there, and knows, at a revision.
func (s *story) restored(at int64, lease history.LeaseState, object *history.ObjectState, revision int64) *story {
	s.epoch++
	s.revision, s.lease, s.object = revision, lease, object
	s.run.Meta.Epochs = append(s.run.Meta.Epochs, history.Epoch{Cut: at - 1, Begin: at, Base: revision, Snapshot: revision})
	s.run.Truth = append(s.run.Truth, &history.Event{Epoch: s.epoch, Revision: 5, Initial: true, Observed: at + 1, Namespace: "n", Name: "n", UID: "l0", Lease: s.copyLease()})
	if object != nil {
		s.run.Truth = append(s.run.Truth, &history.Event{Epoch: s.epoch, Revision: revision, Initial: true, Observed: at + 1, Namespace: "n", Name: "o", UID: "u" + strconv.Itoa(s.uid), Object: object})
	}
	return s
}

// elsewhere returns the history with the guarded objects in a namespace of their own.
func elsewhere(run *history.Run) *history.Run {
	moved := *run
	moved.Meta.Leases, moved.Truth = slices.Clone(run.Meta.Leases), slices.Clone(run.Truth)
	for i := range moved.Meta.Leases {
		moved.Meta.Leases[i].Elsewhere = "m"
	}
	for i, event := range moved.Truth {
		if event.Object != nil {
			there := *event
			there.Namespace = "m"
			moved.Truth[i] = &there
		}
	}
	return &moved
}

// failing returns the names of the checks that a history fails.
func failing(run *history.Run) []string {
	slices.SortFunc(run.Ops, func(a, b *history.Op) int { return int(a.Invoke - b.Invoke) })
	x := index.New(run)
	var names []string
	for _, check := range slices.Concat([]validate.Check{validate.Preconditions(validate.Minimum{})}, validate.Checks(), []validate.Check{validate.Available(2)}) {
		if len(check.Run(x)) > 0 {
			names = append(names, check.Name)
		}
	}
	for _, result := range model.Check(x, time.Minute) {
		if result.Outcome != porcupine.Ok {
			names = append(names, linear)
		}
	}
	return names
}

const (
	lazy = "Lazy"
	seal = "Seal"
)
