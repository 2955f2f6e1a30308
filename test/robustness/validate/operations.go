// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"slices"

	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/pkg/operation"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/robustness/history"
	"github.com/fencedlease/fencedlease/test/robustness/index"
)

// applied is a business operation that was applied to an object.
type applied struct {
	id       string
	epoch    int
	revision int64
}

// applications are the operations that were applied to the objects of a lease, oldest first, as the store's history has
// them: what objects record is not asked.
type applications struct {
	meta  history.Meta
	epoch int
	byUID map[string][]applied
}

// until undoes what the restores before an epoch have undone.
func (a *applications) until(epoch int) {
	for ; a.epoch < epoch; a.epoch++ {
		snapshot := a.meta.Epochs[a.epoch+1].Snapshot
		for uid, all := range a.byUID {
			a.byUID[uid] = slices.DeleteFunc(all, func(one applied) bool { return one.epoch == a.epoch && one.revision > snapshot })
		}
	}
}

// find returns the newest application of an operation to an object, and how many others were applied since; -1 if there is
// none.
func (a *applications) find(uid, id string) (found applied, since int) {
	all := a.byUID[uid]
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].id == id {
			return all[i], len(all) - 1 - i
		}
	}
	return applied{}, -1
}

// operationOf returns the business operation that a commit presents, or nothing. With a term credential an annotation that
// stays as it is stored presents none: the write is one of its term like any other.
func operationOf(lease *index.Lease, c *index.Commit) string {
	if c.Op == nil || !token.IsBusinessOperation(c.Op.Operation) || inherits(lease, c) {
		return ""
	}
	return c.Op.Operation
}

func inherits(lease *index.Lease, c *index.Commit) bool {
	return c.Op != nil && c.Op.Carrier == history.Credential && c.Before != nil && !c.Created && c.Before.Marks[lease.Name] == presented(c.Op)
}

// records tells whether an operation that was applied so many others ago is still recorded.
func records(lease *index.Lease, since int) bool { return since >= 0 && since < lease.History }

// walkOperations calls visit for each commit under a business operation, before it counts.
func walkOperations(x *index.Index, lease *index.Lease, visit func(c *index.Commit, op *history.Op, a *applications)) {
	a := &applications{meta: x.Run.Meta, byUID: map[string][]applied{}}
	for _, c := range lease.Commits {
		a.until(c.Epoch)
		id := operationOf(lease, c)
		if id == "" {
			continue
		}
		// While the lease is deleted what is applied may be recorded or not.
		if c.Unguarded && (c.Part != index.Main || first(c.Object.Operations[lease.Name]) != id) {
			continue
		}
		visit(c, c.Op, a)
		if c.Part == index.Main {
			a.byUID[c.UID] = append(a.byUID[c.UID], applied{id, c.Epoch, c.Revision})
		}
	}
}

// AppliedOnce checks that no operation is applied to an object again, by any verb, as long as the object is to record it.
// What a restore has undone may be applied anew.
func AppliedOnce(x *index.Index) []string {
	var found problems
	for _, lease := range leases(x) {
		walkOperations(x, lease, func(c *index.Commit, op *history.Op, a *applications) {
			before, since := a.find(c.UID, op.Operation)
			if !c.Unguarded && records(lease, since) {
				found.add("%s applied operation %s again, after revision %d of epoch %d and %d others: %s",
					at(c), op.Operation, before.revision, before.epoch, since, describe(c))
			}
		})
	}
	return found
}

// first returns the operation of the newest record.
func first(text string) string {
	all, err := operation.Parse(text)
	if err != nil || len(all) == 0 {
		return ""
	}
	return all[0].Operation
}

// RecordsFollow checks that the records of each state follow from those of the state before: a write of the object with a
// business operation adds its record, and nothing else changes anything.
func RecordsFollow(x *index.Index) []string {
	var found problems
	for _, lease := range leases(x) {
		for _, c := range lease.Commits {
			if c.Deleted {
				continue
			}
			var before map[string]string
			if c.Before != nil && !c.Created {
				before = c.Before.Operations
			}
			for name := range union(before, c.Object.Operations) {
				stored, now := before[name], c.Object.Operations[name]
				if name != lease.Name || !follows(lease, c, stored, now) {
					found.add("%s has records %q of %s, before it had %q: %s", at(c), now, name, stored, describe(c))
				}
			}
		}
	}
	return found
}

func union(maps ...map[string]string) map[string]bool {
	keys := map[string]bool{}
	for _, m := range maps {
		for key := range m {
			keys[key] = true
		}
	}
	return keys
}

// follows tells whether the records after a commit are those that it should leave.
func follows(lease *index.Lease, c *index.Commit, stored, now string) bool {
	recording := c.Part == index.Main && operationOf(lease, c) != "" && lease.History > 0
	if !recording || c.Unguarded && now == stored {
		return now == stored
	}
	before, err := operation.Parse(stored)
	if err != nil {
		return false
	}
	after, err := operation.Parse(now)
	if err != nil || len(after) == 0 {
		return false
	}
	// The time is the API server's own.
	record := operation.Record{Operation: c.Op.Operation, Generation: c.Op.Generation, Time: after[0].Time}
	return now == operation.Format(operation.Add(before, record, lease.History))
}

// repeats tells whether a refusal says that the operation was applied before: outright, or as the annotation is as it is
// stored and presents nothing.
func repeats(op *history.Op) bool {
	if op.Outcome != history.Refused || !token.IsBusinessOperation(op.Operation) {
		return false
	}
	return op.Cause == string(fence.AlreadyApplied) || op.Cause == string(fence.MissingToken) && op.Carrier == history.Annotation
}

// RepetitionsJustified checks each refusal of a repetition: at some moment between the call and the answer the object must
// have had exactly the record that the refusal names, and the term must have been the holder's.
func RepetitionsJustified(x *index.Index) []string {
	var found problems
	for _, lease := range leases(x) {
		for _, op := range x.Ops(lease.LeaseRef) {
			if op.Outcome == history.Refused && op.Cause == string(fence.AlreadyApplied) && !repeats(op) {
				found.add("%s was told of a repetition and presents no operation: %s", index.Describe(op), op.Message)
			}
			if !repeats(op) {
				continue
			}
			versions := lease.During(x.Run.Meta, op)
			inherited := op.Cause == string(fence.MissingToken)
			justified := slices.ContainsFunc(versions, func(v *index.Version) bool {
				record, recorded := operation.Find(v.Operations[lease.Name], op.Operation)
				told := recorded && record.String() == op.Record
				if inherited {
					return v.Marks[lease.Name] == presented(op) && (told || op.Record == "" && !recorded)
				}
				return told
			})
			switch {
			case !justified:
				found.add("%s was told of the record %q, which none of %d versions of the object had: %s", index.Describe(op), op.Record, len(versions), op.Message)
			case !inherited && !heldDuring(x, lease, op):
				found.add("%s was told of the record %q, and its term was not the holder's: %s", index.Describe(op), op.Record, op.Message)
			}
		}
	}
	return found
}

// presented returns the token that an operation presents.
func presented(op *history.Op) string {
	t := token.Token{Generation: op.Generation, Term: op.Term, Operation: op.Operation}
	if op.Bare {
		t.Term = ""
	}
	return t.String()
}

// heldDuring tells whether the token of an operation may have been the holder's at some moment of it.
func heldDuring(x *index.Index, lease *index.Lease, op *history.Op) bool {
	span := lease.Find(x.Run.Meta.Epoch(op), op.Generation, op.Term)
	if span == nil || span.Earliest > op.Return {
		return false
	}
	end := span.End()
	return end == nil || op.Invoke <= end.Observed
}

// Repetitions are the figures of business operations.
type Repetitions struct {
	// Applied are those that were applied, and Told those that were refused as they had been.
	Applied, Told int
	// Inherited are those of Told whose annotation was as it is stored. Later are those that were applied under another
	// generation, Older those after which others were applied, Lost those whose client had sent them before and got no
	// answer.
	Inherited, Later, Older, Lost int
	// AtOnce are those that two processes had sent at once, of which one was applied and the other was told. Kept are those of
	// Told that were applied before a restore, which has kept them.
	AtOnce, Kept int
	// Forgotten are those that were applied again as the record was gone, Undone those that were applied again as a restore had
	// undone them, Unseen those that presented nothing, as the annotation was as it is stored and a credential told the term.
	Forgotten, Undone, Unseen int
}

// CountRepetitions returns the figures.
func CountRepetitions(x *index.Index) Repetitions {
	r := Repetitions{}
	for _, lease := range leases(x) {
		for _, c := range lease.Commits {
			if inherits(lease, c) && token.IsBusinessOperation(c.Op.Operation) {
				r.Unseen++
			}
		}
		undone := map[string]bool{}
		walkOperations(x, lease, func(c *index.Commit, op *history.Op, a *applications) {
			if c.Part != index.Main {
				return
			}
			r.Applied++
			key := c.UID + " " + op.Operation
			switch _, since := a.find(c.UID, op.Operation); {
			case since >= 0:
				r.Forgotten++
			case undone[key]:
				r.Undone++
			}
			undone[key] = true
		})
		unanswered := map[string]bool{}
		for _, op := range x.Ops(lease.LeaseRef) {
			key := op.Client + " " + op.Object + " " + op.Operation
			if token.IsBusinessOperation(op.Operation) && op.Outcome == history.Unknown {
				unanswered[key] = true
			}
			if !repeats(op) {
				continue
			}
			r.Told++
			if op.Cause == string(fence.MissingToken) {
				r.Inherited++
			}
			if unanswered[key] {
				r.Lost++
			}
			if record, err := operation.ParseRecord(op.Record); err == nil && record.Generation != op.Generation {
				r.Later++
			}
			if !slices.ContainsFunc(lease.During(x.Run.Meta, op), func(v *index.Version) bool { return first(v.Operations[lease.Name]) == op.Operation }) {
				r.Older++
			}
			if appliedAtOnce(lease, op) {
				r.AtOnce++
			}
			if fromBackup(lease, op, x.Run.Meta.Epoch(op)) {
				r.Kept++
			}
		}
	}
	return r
}

// appliedAtOnce tells whether another client's call of the same operation was applied that was on its way at the same time.
func appliedAtOnce(lease *index.Lease, op *history.Op) bool {
	return slices.ContainsFunc(lease.Commits, func(c *index.Commit) bool {
		return c.Op != nil && c.Name == op.Object && c.Op.Operation == op.Operation && process(c.Op) != process(op) &&
			c.Op.Invoke <= op.Return && op.Invoke <= c.Op.Return
	})
}

// fromBackup tells whether the operation that a call repeats was applied before the last restore, and not after it.
func fromBackup(lease *index.Lease, op *history.Op, epoch int) bool {
	before := false
	for _, c := range lease.Commits {
		if c.Op == nil || c.Part != index.Main || c.Name != op.Object || c.Op.Operation != op.Operation {
			continue
		}
		if c.Epoch == epoch {
			return false
		}
		before = before || c.Epoch < epoch
	}
	return before
}
