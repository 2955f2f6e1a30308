// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"slices"
	"strconv"
	"strings"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// parts says which part of an object a verb writes.
var parts = map[history.Verb]Part{
	history.Create: Main, history.Update: Main, history.JSONPatch: Main, history.MergePatch: Main, history.Apply: Main,
	history.UpdateStatus: Status, history.PatchStatus: Status, history.Scale: Scale, history.Delete: Gone, history.DeleteCollection: Gone,
}

// attribute finds the operation that made a commit: each write puts its ID into the part that it writes.
func (x *Index) attribute(commit *Commit, deleted map[life]*history.Op, unsure []*history.Op) {
	before := commit.Before
	if before == nil {
		before = &history.ObjectState{}
	}
	var id int64
	switch {
	case commit.Deleted:
		commit.Part = Gone
		mark := commit.Object.Marks[commit.Lease.Name]
		if op := deleted[life{commit.Epoch, commit.UID}]; op != nil {
			commit.Op = underIntent(op, mark)
			x.MadeBy[op.ID] = commit
			return
		}
		if x.asked[life{commit.Epoch, commit.UID}] {
			commit.Part = Removed
			return
		}
		for _, op := range unsure {
			if op.Lease == commit.Lease && op.Object == commit.Name && op.Invoke < commit.Observed && x.Run.Meta.Epoch(op) == commit.Epoch && listed(op, commit.UID) {
				commit.Candidates = append(commit.Candidates, underIntent(op, mark))
			}
		}
		if len(commit.Candidates) == 1 {
			commit.Op, commit.Candidates = commit.Candidates[0], nil
			x.MadeBy[commit.Op.ID] = commit
			return
		}
		if len(commit.Candidates) == 0 {
			x.problem("nobody deleted %s/%s at revision %d", commit.Namespace, commit.Name, commit.Revision)
		}
		return
	case commit.Object.Value != before.Value:
		commit.Part, id = Main, number(commit.Object.Value)
		delete(x.asked, life{commit.Epoch, commit.UID})
	case commit.Object.Result != before.Result:
		commit.Part, id = Status, number(commit.Object.Result)
	case commit.Object.Replicas != before.Replicas:
		commit.Part, id = Scale, commit.Object.Replicas
	default:
		commit.Part = Stamp
		x.asked[life{commit.Epoch, commit.UID}] = x.deletesLate(commit.Lease) && intends(commit.Object.Marks[commit.Lease.Name])
		return
	}
	op := x.byID[id]
	switch {
	case op == nil:
		x.problem("nobody wrote revision %d of %s/%s: %q", commit.Revision, commit.Namespace, commit.Name, commit.Object.Value)
		return
	case op.Lease != commit.Lease || op.Object != commit.Name || parts[op.Verb] != commit.Part:
		x.problem("operation %d (%s of %s) cannot have written %s of %s/%s at revision %d", op.ID, op.Verb, op.Object, commit.Part, commit.Namespace, commit.Name, commit.Revision)
	case x.MadeBy[id] != nil:
		x.problem("operation %d was committed at revisions %d and %d", id, x.MadeBy[id].Revision, commit.Revision)
	case commit.Created && op.Verb != history.Create && op.Verb != history.Apply:
		x.problem("operation %d (%s) created %s/%s", op.ID, op.Verb, commit.Namespace, commit.Name)
	}
	commit.Op = op
	x.MadeBy[id] = commit
}

// intends tells whether a mark asks for the deletion of its object.
func intends(mark string) bool { return strings.HasSuffix(mark, "/"+token.OperationDelete) }

// deletesLate tells whether the product deletes late creates of a lease.
func (x *Index) deletesLate(lease history.LeaseRef) bool {
	return x.Leases[lease].LateCreates == string(v1alpha1.LateCreatesDelete)
}

// underIntent returns a delete as it counts. One that presents no token, of an object whose mark asks for its deletion, is made
// under the term of that mark, whoever sends it.
func underIntent(op *history.Op, mark string) *history.Op {
	if op.Carrier != history.None && op.Carrier != history.Annotation || !intends(mark) {
		return op
	}
	counts := *op
	counts.Generation, counts.Term = Generation(mark), Term(mark)
	return &counts
}

// listed tells whether the answer to a delete, if there is one, has the object.
func listed(op *history.Op, uid string) bool {
	return op.Outcome == history.Unknown || slices.ContainsFunc(op.Seen, func(seen history.Seen) bool { return seen.UID == uid })
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Consistent reports the contradictions between what clients were told and what was committed.
func (x *Index) Consistent() []string {
	problems := slices.Clone(x.Problems)
	saying := func(op *history.Op, what string) {
		problems = append(problems, Describe(op)+" "+what)
	}
	gone := map[life]bool{}
	for _, lease := range x.Leases {
		for _, commit := range lease.Commits {
			if commit.Deleted {
				gone[life{commit.Epoch, commit.UID}] = true
			}
		}
	}
	for _, op := range x.Run.Ops {
		if op.Verb.Reads() || op.Verb.OfLease() {
			continue
		}
		commit := x.MadeBy[op.ID]
		switch {
		case op.Outcome == history.OK && op.Verb.Deletes():
			for _, seen := range op.Seen {
				if !gone[life{x.Run.Meta.Epoch(op), seen.UID}] {
					saying(op, "was told that it deleted "+seen.UID+", which is still there")
				}
			}
		case op.Outcome == history.OK && commit == nil:
			saying(op, "was accepted and is not in the store's history")
		case op.Outcome == history.OK && (len(op.Seen) != 1 || op.Seen[0].Revision != commit.Revision || op.Seen[0].UID != commit.UID):
			saying(op, "was told another revision than "+strconv.FormatInt(commit.Revision, 10))
		case op.Outcome != history.OK && op.Outcome != history.Unknown && commit != nil:
			saying(op, "was committed at revision "+strconv.FormatInt(commit.Revision, 10)+" all the same")
		}
	}
	return problems
}

// Describe names an operation for a report.
func Describe(op *history.Op) string {
	text := "operation " + strconv.FormatInt(op.ID, 10) + " (" + op.Client + ": " + string(op.Verb)
	if op.Carrier != "" {
		text += " by " + string(op.Carrier)
	}
	text += " of " + op.Lease.Namespace + "/" + op.Object
	if op.Generation != 0 {
		text += " under " + strconv.FormatInt(op.Generation, 10) + "." + op.Term
	}
	text += ", " + string(op.Outcome)
	if op.Cause != "" {
		text += " " + op.Cause
	}
	return text + ")"
}
