// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/robustness/history"
	"github.com/fencedlease/fencedlease/test/robustness/index"
)

// Result is that of one object.
type Result struct {
	Lease      history.LeaseRef
	Object     string
	Operations int
	Outcome    porcupine.CheckResult
	Took       time.Duration

	model      porcupine.Model
	begin      state
	operations []porcupine.Operation
	info       porcupine.LinearizationInfo
}

// Visualize writes porcupine's page.
func (r Result) Visualize(path string) error {
	if err := porcupine.VisualizePath(r.model, r.info, path); err != nil {
		return fmt.Errorf("write page of %s/%s: %w", r.Lease.Namespace, r.Object, err)
	}
	return nil
}

// Check checks every object of a history, each for at most the timeout.
func Check(x *index.Index, timeout time.Duration) []Result {
	var results []Result
	for _, lease := range x.Run.Meta.Leases {
		for _, object := range lease.Objects {
			begin, operations := partition(x, x.Leases[lease.LeaseRef], object)
			model := specification(begin)
			started := history.Now()
			outcome, info := porcupine.CheckOperationsVerbose(model, operations, timeout)
			results = append(results, Result{
				Lease: lease.LeaseRef, Object: object, Operations: len(operations), Outcome: outcome,
				Took: time.Duration(history.Now() - started), model: model, info: info, begin: begin, operations: operations,
			})
		}
	}
	return results
}

// builder collects the operations of one partition.
type builder struct {
	index      *index.Index
	lease      *index.Lease
	object     string
	operations []porcupine.Operation
	clients    map[string]int
	// changes are the intervals in which the lease changed.
	changes [][2]int64
}

func (b *builder) client(name string) int {
	if _, known := b.clients[name]; !known {
		b.clients[name] = len(b.clients)
	}
	return b.clients[name]
}

func (b *builder) add(client string, in *input, call, ret int64) {
	b.operations = append(b.operations, porcupine.Operation{ClientId: b.client(client), Input: in, Call: call, Return: max(call, ret)})
}

// partition returns the operations that concern one object, and the state before them.
func partition(x *index.Index, lease *index.Lease, object string) (state, []porcupine.Operation) {
	b := &builder{index: x, lease: lease, object: object, clients: map[string]int{}}
	begin := b.initial(0)
	for i := range x.Run.Meta.Epochs[1:] {
		epoch := x.Run.Meta.Epochs[i+1]
		b.changes = append(b.changes, [2]int64{epoch.Cut, epoch.Begin})
		b.add("the store", &input{kind: restore, after: b.initial(i + 1), text: fmt.Sprintf("restore to revision %d", epoch.Base)}, epoch.Cut, epoch.Begin)
	}
	b.leaseChanges()
	for _, commit := range lease.Commits {
		if commit.Name == object {
			b.commit(commit)
		}
	}
	for _, op := range x.Ops(lease.LeaseRef) {
		b.answer(op)
	}
	slices.SortFunc(b.operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	return begin, b.operations
}

// initial returns what an epoch begins with.
func (b *builder) initial(epoch int) state {
	s := state{epoch: epoch, revision: b.index.Run.Meta.Epochs[epoch].Base}
	for _, event := range b.index.Run.Truth {
		if event.Epoch != epoch || !event.Initial {
			continue
		}
		switch {
		case event.Lease != nil && event.Namespace == b.lease.Namespace && event.Name == b.lease.Name:
			l := event.Lease
			s.exists, s.held, s.generation, s.term, s.sealed = true, l.Holder != "", l.Generation, l.Term, l.SealedGeneration
		case event.Object != nil && event.Namespace == b.lease.ObjectNamespace() && event.Name == b.object:
			mark := event.Object.Marks[b.lease.Name]
			s.object, s.objectRevision, s.mark, s.markTerm = true, event.Revision, index.Generation(mark), index.Term(mark)
		}
	}
	return s
}

func (b *builder) leaseChanges() {
	for i, span := range b.lease.Spans {
		if i == 0 || b.lease.Spans[i-1].Epoch != span.Epoch {
			continue // what the epoch began with
		}
		held := span.Exists && span.Holder != ""
		text := fmt.Sprintf("revision %d: lease at %d.%s", span.Revision, span.Generation, span.Term)
		switch {
		case !span.Exists:
			text = fmt.Sprintf("revision %d: lease deleted", span.Revision)
		case held:
			text += " held by " + span.Holder
		default:
			text += " released"
		}
		b.add("the lease", &input{kind: leaseChange, epoch: span.Epoch, revision: span.Revision, text: text, after: state{
			exists: span.Exists, held: held, generation: span.Generation, term: span.Term, sealed: span.SealedGeneration,
		}}, span.Earliest, span.Observed)
		b.changes = append(b.changes, [2]int64{span.Earliest, span.Observed})
	}
}

// author returns how an operation presents itself.
func (b *builder) author(op *history.Op) author {
	return author{
		generation: op.Generation, term: op.Term,
		fast: op.Verb.Updates() && b.handover(op) == string(v1alpha1.HandoverSeal),
	}
}

func (b *builder) handover(op *history.Op) string {
	for i := range b.index.Run.Meta.Epochs {
		if span := b.lease.Find(i, op.Generation, op.Term); span != nil {
			return span.Handover
		}
	}
	return ""
}

func (b *builder) commit(c *index.Commit) {
	in := &input{kind: commit, epoch: c.Epoch, revision: c.Revision, unguarded: c.Unguarded, text: fmt.Sprintf("revision %d: ", c.Revision)}
	if !c.Deleted {
		mark := c.Object.Marks[b.lease.Name]
		in.after = state{object: true, objectRevision: c.Revision, mark: index.Generation(mark), markTerm: index.Term(mark)}
	}
	if c.Part == index.Stamp {
		in.kind = stamp
		in.text += "stamped with " + c.Object.Marks[b.lease.Name]
		b.add("the controller", in, c.Earliest, c.Observed)
		return
	}
	if c.Part == index.Removed {
		in.kind = stamp
		in.text += "deleted as a late create"
		b.add("the controller", in, c.Earliest, c.Observed)
		return
	}
	ops := c.Candidates
	if c.Op != nil {
		ops = []*history.Op{c.Op}
	}
	call, ret := history.Never, c.Observed
	for _, op := range c.Candidates {
		if op.Outcome != history.OK {
			continue
		}
		// A collection that has been answered has seen its objects gone.
		ret = min(ret, op.Return)
	}
	for _, op := range ops {
		in.authors = append(in.authors, b.author(op))
		call = min(call, op.Invoke)
	}
	client := "unanswered deletes"
	if c.Op != nil {
		client = c.Op.Client
		if c.Op.Outcome == history.OK {
			ret = min(ret, c.Op.Return)
		} else {
			// Its client has gone on meanwhile.
			client = fmt.Sprintf("%s, unanswered %d", c.Op.Client, c.Op.ID)
		}
		in.text += string(c.Op.Verb) + fmt.Sprintf(" under %d.%s", c.Op.Generation, c.Op.Term)
	} else {
		in.text += fmt.Sprintf("one of %d deletes", len(ops))
	}
	if len(ops) == 0 {
		call = c.Earliest
	}
	// Where the lease stays the same all the time, one moment is as good as two.
	in.separate = len(ops) > 0 && !c.Unguarded && b.changing(call, ret)
	if in.separate {
		b.add(client+" (check)", &input{kind: check, revision: c.Revision, authors: in.authors, text: "check for " + in.text}, call, ret)
	}
	b.add(client, in, call, ret)
}

// changing tells whether the lease may have changed in an interval.
func (b *builder) changing(from, to int64) bool {
	return slices.ContainsFunc(b.changes, func(c [2]int64) bool { return c[0] <= to && from <= c[1] })
}

// answer adds reads and refusals.
func (b *builder) answer(op *history.Op) {
	switch {
	case op.Verb.Reads() && op.Outcome == history.OK && (op.Verb == history.List || op.Object == b.object):
		in := &input{kind: read, text: string(op.Verb) + ": absent"}
		for _, seen := range op.Seen {
			if seen.Name == b.object {
				in.after = state{object: true, objectRevision: seen.Revision}
				in.text = fmt.Sprintf("%s: revision %d", op.Verb, seen.Revision)
			}
		}
		b.add(op.Client, in, op.Invoke, op.Return)
	case op.Outcome == history.Refused && op.Object == b.object && refutable(op) && !b.lease.BroughtBack(b.index.Run.Meta, op):
		in := &input{kind: refusal, authors: []author{b.author(op)}, text: fmt.Sprintf("%s under %d.%s refused: %s", op.Verb, op.Generation, op.Term, op.Cause)}
		b.add(op.Client, in, op.Invoke, op.Return)
	}
}

// refutable tells whether the model can say that a refusal is wrong: if it is because of the lease or the mark.
func refutable(op *history.Op) bool {
	switch op.Cause {
	case "StaleToken", "Released", "ForkedTerm", "FutureToken":
		return op.Generation != 0 && op.Carrier != history.None
	}
	return false
}

// Explain says how far the checker came: the state after the longest order that it found, the last operations of it, and
// the operations that should have followed and could not.
func (r Result) Explain() string {
	var longest []porcupine.Operation
	for _, partition := range r.info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	const shown = 6
	s, done := r.begin, map[*input]bool{}
	for _, operation := range longest {
		in := operation.Input.(*input) //nolint:forcetypeassert // nothing else is in this model
		_, s = step(s, in)
		done[in] = true
	}
	text := fmt.Sprintf("%d of %d operations can be ordered; then %s\nlast:\n", len(longest), r.Operations, describe(s))
	line := func(operation porcupine.Operation) {
		text += fmt.Sprintf("  %d to %d: %s\n", operation.Call, operation.Return, operation.Input.(*input).text) //nolint:forcetypeassert // as above
	}
	for _, operation := range longest[max(0, len(longest)-shown):] {
		line(operation)
	}
	text += "next to return:\n"
	left := slices.DeleteFunc(slices.Clone(r.operations), func(operation porcupine.Operation) bool { return done[operation.Input.(*input)] }) //nolint:forcetypeassert // as above
	slices.SortFunc(left, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for _, operation := range left[:min(shown, len(left))] {
		line(operation)
	}
	return text
}
