// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/test/robustness/history"
	"github.com/fencedlease/fencedlease/test/robustness/index"
	"github.com/fencedlease/fencedlease/test/robustness/validate"
)

// Names of the checks of operations.
const (
	once        = "no operation is applied again while it is recorded"
	follow      = "records of operations follow from those before"
	repetitions = "every repetition that was refused was one"
)

// records makes what the last commit left record operations.
func (s *story) records(text string) *story {
	s.object.Operations = map[string]string{"n": text}
	return s
}

// job is a write under a business operation that was accepted, and what the object records then.
func (s *story) job(id int64, verb history.Verb, generation int64, term, job string, invoke, ret int64, records string) *story {
	op := s.op(id, verb, generation, term, invoke, ret, history.OK)
	op.Operation = job
	s.commits(op, ret)
	if verb != history.PatchStatus {
		s.object.Marks["n"] += "/" + job
	}
	return s.records(records)
}

// told is a repetition that was refused with a record.
func (s *story) told(id int64, generation int64, term, job, cause, record string, invoke, ret int64) *story {
	s.refused(id, history.MergePatch, generation, term, cause, invoke, ret)
	op := s.run.Ops[len(s.run.Ops)-1]
	op.Operation, op.Record = job, record
	return s
}

func TestOperationsAreAppliedOnce(t *testing.T) {
	// Each story begins with A under 33, who creates the object by the operation j1. It records two operations.
	begin := func() *story {
		s := newStory(lazy).acquired(10, 33, "a")
		s.run.Meta.Leases[0].History = 2
		return s.job(1, history.Create, 33, "a", "j1", 20, 30, "j1=33")
	}
	twice := strings.Join([]string{"j1=33", "j1=33"}, " ")
	for name, c := range map[string]struct {
		story *story
		want  []string
	}{
		"the next operation": {story: begin().job(2, history.MergePatch, 33, "a", "j2", 40, 50, "j2=33 j1=33")},
		"an operation again": {
			story: begin().job(2, history.MergePatch, 33, "a", "j2", 40, 50, "j2=33 j1=33").job(3, history.MergePatch, 33, "a", "j1", 60, 70, "j1=33 j2=33"),
			want:  []string{once}},
		"an operation again that the object has forgotten too early": {
			story: begin().job(2, history.MergePatch, 33, "a", "j2", 40, 50, "j2=33").job(3, history.MergePatch, 33, "a", "j1", 60, 70, "j1=33 j2=33"),
			want:  []string{once, follow}},
		"an operation again by a successor": {
			story: begin().acquired(40, 34, "b").job(2, history.MergePatch, 34, "b", "j1", 50, 60, "j1=34 j1=33"),
			want:  []string{once}},
		"an operation again on the status": {
			story: begin().job(2, history.MergePatch, 33, "a", "j2", 40, 50, "j2=33 j1=33").job(3, history.PatchStatus, 33, "a", "j1", 60, 70, "j2=33 j1=33"),
			want:  []string{once}},
		"an operation that is over the horizon": {
			story: begin().job(2, history.MergePatch, 33, "a", "j2", 40, 50, "j2=33 j1=33").job(3, history.MergePatch, 33, "a", "j3", 60, 70, "j3=33 j2=33").
				job(4, history.MergePatch, 33, "a", "j1", 80, 90, "j1=33 j3=33")},
		"an operation that a restore has undone": {story: func() *story {
			s := begin()
			lease, object := s.lease, s.object
			return s.job(2, history.MergePatch, 33, "a", "j2", 40, 50, "j2=33 j1=33").restored(100, lease, object, 12).
				job(3, history.MergePatch, 33, "a", "j2", 110, 120, "j2=33 j1=33")
		}()},
		"an operation again that a restore has not undone": {story: func() *story {
			s := begin()
			lease, object := s.lease, s.object
			return s.restored(100, lease, object, 12).job(3, history.MergePatch, 33, "a", "j1", 110, 120, twice)
		}(), want: []string{once}},
		"a write without a business operation leaves the records": {story: begin().write(2, history.MergePatch, 33, "a", 40, 50).records("j1=33")},
		"a write without a business operation changes the records": {
			story: begin().write(2, history.MergePatch, 33, "a", 40, 50).records("j9=33 j1=33"),
			want:  []string{follow}},
		"a write without a business operation loses the records": {story: begin().write(2, history.MergePatch, 33, "a", 40, 50), want: []string{follow}},
		"an operation is not recorded": {
			story: begin().job(2, history.MergePatch, 33, "a", "j2", 40, 50, "j1=33"),
			want:  []string{follow}},
		"an operation is recorded under another generation": {
			story: begin().job(2, history.MergePatch, 33, "a", "j2", 40, 50, "j2=32 j1=33"),
			want:  []string{follow}},
		"an object records too much": {
			story: begin().job(2, history.MergePatch, 33, "a", "j2", 40, 50, "j2=33 j1=33").job(3, history.MergePatch, 33, "a", "j3", 60, 70, "j3=33 j2=33 j1=33"),
			want:  []string{follow}},
		"an apply is refused as it would take records away": {
			story: begin().refused(2, history.Apply, 33, "a", "RecordTampered", 40, 50), want: []string{justified}},
		"a repetition is told": {story: begin().told(2, 33, "a", "j1", "AlreadyApplied", "j1=33", 40, 50)},
		"a repetition is told of a record that is not there": {
			story: begin().told(2, 33, "a", "j2", "AlreadyApplied", "j2=33", 40, 50),
			want:  []string{repetitions}},
		"a repetition is told of another record": {
			story: begin().told(2, 33, "a", "j1", "AlreadyApplied", "j1=32", 40, 50),
			want:  []string{repetitions}},
		"a repetition under an ended term is told": {
			story: begin().acquired(40, 34, "b").told(2, 33, "a", "j1", "AlreadyApplied", "j1=33", 50, 60),
			want:  []string{repetitions}},
		"a repetition leaves the annotation as it is stored": {story: begin().told(2, 33, "a", "j1", "MissingToken", "j1=33", 40, 50)},
		"a new operation is told that it presents no token": {
			story: begin().told(2, 33, "a", "j2", "MissingToken", "", 40, 50),
			want:  []string{repetitions}},
		"with a credential an annotation that is as stored says nothing": {story: func() *story {
			s := begin()
			op := s.op(2, history.MergePatch, 33, "a", 40, 50, history.OK)
			op.Operation, op.Carrier = "j1", history.Credential
			return s.commits(op, 50).records("j1=33")
		}()},
		"with a credential another form of the token is an operation again": {story: func() *story {
			s := begin()
			op := s.op(2, history.MergePatch, 33, "a", 40, 50, history.OK)
			op.Operation, op.Carrier, op.Bare = "j1", history.Credential, true
			s.commits(op, 50).records(twice)
			s.object.Marks["n"] = "33/j1"
			return s
		}(), want: []string{once}},
		"the mark names another operation": {story: func() *story {
			s := begin().job(2, history.MergePatch, 33, "a", "j2", 40, 50, "j2=33 j1=33")
			s.object.Marks["n"] = "33." + full("a") + "/j3"
			return s
		}(), want: []string{markMoves}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, failing(c.story.run)); diff != "" {
				t.Errorf("failing checks (-want +got):\n%s\n%v", diff, index.New(c.story.run).Problems)
			}
		})
	}
}

// Repetitions are counted as what they are, also across a restore.
func TestRepetitionsAreCounted(t *testing.T) {
	s := newStory(lazy).acquired(10, 33, "a").job(1, history.Create, 33, "a", "j1", 20, 30, "j1=33")
	lease, object := s.lease, s.object
	s.job(2, history.MergePatch, 33, "a", "j2", 40, 50, "j2=33 j1=33")
	s.told(3, 33, "a", "j2", "AlreadyApplied", "j2=33", 45, 60) // at once
	s.told(4, 33, "a", "j1", "AlreadyApplied", "j1=33", 70, 80) // after a newer one
	s.acquired(90, 34, "b").told(5, 34, "b", "j2", "AlreadyApplied", "j2=33", 95, 100)
	s.restored(200, lease, object, 12)
	s.told(6, 33, "a", "j1", "AlreadyApplied", "j1=33", 210, 220)
	s.job(7, history.MergePatch, 33, "a", "j2", 230, 240, "j2=33 j1=33")
	s.told(8, 33, "a", "j2", "AlreadyApplied", "j2=33", 250, 260)
	s.run.Meta.Leases[0].History = 2
	want := validate.Repetitions{Applied: 3, Told: 5, Later: 1, Older: 1, AtOnce: 1, Kept: 1, Undone: 1}
	if diff := cmp.Diff(want, validate.CountRepetitions(index.New(s.run))); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
}
