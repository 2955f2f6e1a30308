// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package index brings the operations of a history and the committed states together: which operation made which commit,
// and what the lease said when.
//
// Nothing in it is an estimate. Where a time is not known it is replaced by a bound: a state was committed before it was
// observed, and after the sending of every write whose commit has a lower revision.
package index

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// Part is what of an object a commit changed.
type Part string

// The parts.
const (
	Main   Part = "main"
	Status Part = "status"
	Scale  Part = "scale"
	Gone   Part = "gone"
	// Stamp is a change of the mark alone: the product's own.
	Stamp Part = "stamp"
	// Removed is a deletion by the product, of an object that it had stamped with the intent to.
	Removed Part = "removed"
)

// Commit is one committed change of a guarded object.
type Commit struct {
	*history.Event
	Lease history.LeaseRef
	Part  Part
	// Op is the operation that made it, nil if that is not known.
	Op *history.Op
	// Candidates are the operations that may have deleted the object, if it is not known which one did.
	Candidates []*history.Op
	// Before is the state before it, nil for a new object.
	Before *history.ObjectState
	// Earliest is a time that is not after the commit.
	Earliest int64
	// Unguarded says that the lease was deleted, or not in force again, when it may have been admitted.
	Unguarded bool
}

// Generation returns the generation of the mark, 0 without one.
func Generation(mark string) int64 {
	parsed, err := token.Parse(mark)
	if err != nil {
		return 0
	}
	return parsed.Generation
}

// Term returns the term of the mark.
func Term(mark string) string {
	parsed, err := token.Parse(mark)
	if err != nil {
		return ""
	}
	return parsed.Term
}

// Span is a time in which what the lease said of its possession stayed the same.
type Span struct {
	history.LeaseState
	Epoch    int
	Revision int64
	// Exists says that the lease was there.
	Exists bool
	UID    string
	// Earliest and Observed are bounds of its begin.
	Earliest, Observed int64
	// Next is what followed in the same epoch, or nil.
	Next *Span
}

// Holds tells whether the span is that of a token.
func (s *Span) Holds(generation int64, term string) bool {
	return s.Exists && s.Holder != "" && s.Generation == generation && s.Term == term
}

// Window is a time in which a lease protected nothing, as it was deleted.
type Window struct {
	Epoch int
	// Revision is that of the deletion, Ready when the next lease of that name was seen to be in force.
	Revision int64
	Ready    int64
}

// Index is a history with everything that follows from it.
type Index struct {
	Run *history.Run
	// Leases are those of the run.
	Leases map[history.LeaseRef]*Lease
	// Problems are contradictions between operations and commits.
	Problems []string
	// MadeBy finds the commits of operations.
	MadeBy map[int64]*Commit

	byID map[int64]*history.Op
	// guarding are the leases by the namespace of their objects.
	guarding map[string]*Lease
	// asked are the objects whose last mark is the product's intent to delete them.
	asked  map[life]bool
	newest int64
}

// Lease is what happened to one lease and its objects.
type Lease struct {
	history.Lease
	// Spans are in the order of epochs and revisions, and so are the Commits.
	Spans   []*Span
	Commits []*Commit
	Windows []Window
	// Versions are the states of its objects, in the order in which they began.
	Versions []*Version
	// Reports are what the lease said of late creates, each once.
	Reports []Report
}

// Report is a message of the condition LateCreate.
type Report struct {
	Epoch    int
	Revision int64
	Message  string
}

func (x *Index) problem(format string, args ...any) {
	x.Problems = append(x.Problems, fmt.Sprintf(format, args...))
}

// New makes the index of a history.
func New(run *history.Run) *Index {
	x := &Index{Run: run, Leases: map[history.LeaseRef]*Lease{}, MadeBy: map[int64]*Commit{}, byID: map[int64]*history.Op{}, guarding: map[string]*Lease{}, asked: map[life]bool{}}
	for _, lease := range run.Meta.Leases {
		indexed := &Lease{Lease: lease}
		x.Leases[lease.LeaseRef], x.guarding[lease.ObjectNamespace()] = indexed, indexed
	}
	acquisitions := map[string]*history.Op{}
	deleted := map[life]*history.Op{}
	var unsure []*history.Op
	for _, op := range run.Ops {
		x.byID[op.ID] = op
		switch {
		case op.Verb == history.Acquire || op.Verb == history.Release:
			acquisitions[possessionKey(op.Lease, string(op.Verb), op.Generation, op.Term)] = op
		case op.Verb == history.Delete && op.Outcome == history.OK:
			for _, seen := range op.Seen {
				l := life{run.Meta.Epoch(op), seen.UID}
				if other := deleted[l]; other != nil {
					x.problem("operations %d and %d were both told that they deleted %s", other.ID, op.ID, seen.UID)
				}
				deleted[l] = op
			}
		case op.Verb.Deletes() && (op.Outcome == history.Unknown || op.Outcome == history.OK):
			// The answer to a collection lists objects that somebody else has deleted meanwhile, too.
			unsure = append(unsure, op)
		}
	}
	x.walk(acquisitions, deleted, unsure)
	for _, lease := range x.Leases {
		lease.findWindows(run)
		for _, commit := range lease.Commits {
			commit.Unguarded = lease.unguarded(commit)
		}
	}
	return x
}

// life is an object from its creation to its deletion. A restore can bring it back.
type life struct {
	epoch int
	uid   string
}

func possessionKey(lease history.LeaseRef, verb string, generation int64, term string) string {
	return lease.String() + " " + verb + " " + strconv.FormatInt(generation, 10) + "." + term
}

// walk goes through the committed states in their order.
func (x *Index) walk(acquisitions map[string]*history.Op, deleted map[life]*history.Op, unsure []*history.Op) {
	type key struct{ namespace, name string }
	states := map[key]*history.ObjectState{}
	last := map[history.LeaseRef]*Span{}
	epoch, revision := 0, int64(0)
	for _, event := range x.Run.Truth {
		if event.Epoch != epoch {
			epoch, revision = event.Epoch, 0
			states, last = map[key]*history.ObjectState{}, map[history.LeaseRef]*Span{}
			// What is there after a restore was there when it was over.
			x.newest = max(x.newest, x.Run.Meta.Epochs[epoch].Cut)
		}
		if !event.Initial {
			if event.Revision <= revision {
				x.problem("revision %d of epoch %d was recorded after %d", event.Revision, epoch, revision)
			}
			revision = event.Revision
		}
		if event.Lease != nil {
			ref := history.LeaseRef{Namespace: event.Namespace, Name: event.Name}
			if lease := x.Leases[ref]; lease != nil {
				last[ref] = x.lease(lease, event, last[ref], acquisitions)
			}
			continue
		}
		lease := x.guarding[event.Namespace]
		if lease == nil {
			continue
		}
		k := key{event.Namespace, event.Name}
		if event.Initial {
			lease.begins(event, x.newest)
		} else {
			commit := &Commit{Event: event, Lease: lease.LeaseRef, Before: states[k]}
			x.attribute(commit, deleted, unsure)
			commit.Earliest = x.newest
			if commit.Op != nil {
				x.newest = max(x.newest, commit.Op.Invoke)
				commit.Earliest = x.newest
			}
			lease.Commits = append(lease.Commits, commit)
			lease.begins(event, commit.Earliest)
		}
		states[k] = event.Object
		if event.Deleted {
			delete(states, k)
		}
	}
}

// lease adds a state of a lease and returns the present span.
func (x *Index) lease(lease *Lease, event *history.Event, last *Span, acquisitions map[string]*history.Op) *Span {
	if message := event.Lease.Conditions[v1alpha1.ConditionLateCreate]; message != "" {
		if n := len(lease.Reports); n == 0 || lease.Reports[n-1].Message != message {
			lease.Reports = append(lease.Reports, Report{event.Epoch, event.Revision, message})
		}
	}
	span := &Span{
		LeaseState: *event.Lease, Epoch: event.Epoch, Revision: event.Revision, Exists: !event.Deleted, UID: event.UID,
		Earliest: x.newest, Observed: event.Observed,
	}
	if last != nil && last.Exists == span.Exists && last.UID == span.UID && last.Generation == span.Generation && last.Term == span.Term &&
		last.Holder == span.Holder && last.SealedGeneration == span.SealedGeneration && last.Ready == span.Ready {
		return last
	}
	var made *history.Op
	switch {
	case event.Initial || event.Deleted || last == nil:
	case last.Term != span.Term:
		made = acquisitions[possessionKey(lease.LeaseRef, string(history.Acquire), span.Generation, span.Term)]
	case last.Holder != span.Holder:
		made = acquisitions[possessionKey(lease.LeaseRef, string(history.Release), span.Generation, span.Term)]
	}
	if made != nil && made.Invoke > span.Earliest && made.Invoke <= span.Observed {
		span.Earliest, x.newest = made.Invoke, made.Invoke
	}
	if last != nil {
		last.Next = span
	}
	lease.Spans = append(lease.Spans, span)
	return span
}

// findWindows finds when the lease protected nothing.
func (l *Lease) findWindows(run *history.Run) {
	for _, span := range l.Spans {
		if span.Exists {
			continue
		}
		window := Window{Epoch: span.Epoch, Revision: span.Revision, Ready: history.Never}
		for next := span.Next; next != nil; next = next.Next {
			if next.Exists && next.Ready {
				window.Ready = next.Observed
				break
			}
		}
		if window.Ready == history.Never && span.Epoch+1 < len(run.Meta.Epochs) {
			window.Ready = run.Meta.Epochs[span.Epoch+1].Begin
		}
		l.Windows = append(l.Windows, window)
	}
}

// unguarded tells whether a commit may have been admitted while the lease was not in force.
func (l *Lease) unguarded(commit *Commit) bool {
	return slices.ContainsFunc(l.Windows, func(w Window) bool {
		return w.Epoch == commit.Epoch && commit.Revision > w.Revision && commit.sent() < w.Ready
	})
}

// sent returns when the commit was asked for at the earliest.
func (c *Commit) sent() int64 {
	sent := c.Earliest
	if c.Op != nil {
		sent = c.Op.Invoke
	}
	for _, candidate := range c.Candidates {
		sent = min(sent, candidate.Invoke)
	}
	return sent
}

// Find returns the span in which a token was that of the holder, in an epoch, or nil.
func (l *Lease) Find(epoch int, generation int64, term string) *Span {
	i := slices.IndexFunc(l.Spans, func(s *Span) bool { return s.Epoch == epoch && s.Holds(generation, term) })
	if i < 0 {
		return nil
	}
	return l.Spans[i]
}

// BroughtBack tells whether a refused operation is of a term that a restore made the holder's again, after a later one that
// the restore undid. Whoever remembers that one takes the term for stale: it was, and nothing tells it but a new read.
func (l *Lease) BroughtBack(meta history.Meta, op *history.Op) bool {
	epoch := meta.Epoch(op)
	return slices.ContainsFunc(l.Spans, func(s *Span) bool { return s.Epoch < epoch && s.Generation > op.Generation })
}

// End returns the first span after s that is not of the same possession, or nil.
func (s *Span) End() *Span {
	next := s.Next
	for next != nil && next.Holds(s.Generation, s.Term) {
		next = next.Next
	}
	return next
}

// Ops returns the operations of a lease in the order of their calls.
func (x *Index) Ops(lease history.LeaseRef) []*history.Op {
	var ops []*history.Op
	for _, op := range x.Run.Ops {
		if op.Lease == lease {
			ops = append(ops, op)
		}
	}
	slices.SortFunc(ops, func(a, b *history.Op) int { return cmp.Or(cmp.Compare(a.Invoke, b.Invoke), cmp.Compare(a.ID, b.ID)) })
	return ops
}
