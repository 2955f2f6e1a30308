// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// removed is a deletion by the controller: its intent, and the delete.
func (s *story) removed(intent, at int64) *story {
	s.stamped(intent).intended()
	e := s.event(at)
	e.Name, e.UID, e.Deleted, e.Object = "o", s.uidNow(), true, s.object
	s.object = nil
	return s
}

func TestLateCreatesAreDeleted(t *testing.T) {
	// Each story begins with a create of A's that is late: B has sealed 34.
	late := func() *story {
		s := newStory(seal).acquired(10, 33, "a").sealed(15).acquired(50, 34, "b").sealed(60).write(2, history.Create, 33, "a", 40, 70)
		s.run.Meta.Leases[0].LateCreates = string(v1alpha1.LateCreatesDelete)
		return s
	}
	for name, c := range map[string]struct {
		story *story
		want  []string
	}{
		"a late create is deleted":                                {story: late().removed(80, 90)},
		"a late create is deleted and created anew by the holder": {story: late().removed(80, 90).write(3, history.Create, 34, "b", 100, 110)},
		"a late create is written by its author and deleted": {
			story: late().write(3, history.MergePatch, 33, "a", 45, 75).removed(80, 90)},
		"the holder takes a late create over before it is deleted": {
			story: late().stamped(80).intended().write(3, history.MergePatch, 34, "b", 82, 85)},
		"a late create is deleted after the holder has taken it over": {
			story: late().write(3, history.MergePatch, 34, "b", 72, 75).removed(80, 90),
			want:  []string{removed}},
		"the holder takes a late create over, and its intent is not the last mark any more": {story: func() *story {
			s := late().stamped(80).intended().write(3, history.MergePatch, 34, "b", 82, 85)
			e := s.event(90)
			e.Name, e.UID, e.Deleted, e.Object = "o", s.uidNow(), true, s.object
			return s
		}(), want: []string{consistent, neverFalls, noLate, afterSeal, linear}},
		"an object that was there before the term is deleted": {story: func() *story {
			s := newStory(seal).acquired(10, 33, "a").sealed(15).write(1, history.Create, 33, "a", 20, 30).acquired(50, 34, "b")
			s.run.Meta.Leases[0].LateCreates = string(v1alpha1.LateCreatesDelete)
			return s.removed(55, 60).sealed(70)
		}(), want: []string{removed}},
		"an object of the holder's own is deleted": {story: func() *story {
			s := newStory(seal).acquired(10, 33, "a").sealed(15).write(1, history.Create, 33, "a", 20, 30)
			s.run.Meta.Leases[0].LateCreates = string(v1alpha1.LateCreatesDelete)
			return s.removed(55, 60)
		}(), want: []string{removed}},
		"a lease that reports late creates deletes one": {story: func() *story {
			s := late()
			s.run.Meta.Leases[0].LateCreates = string(v1alpha1.LateCreatesReport)
			return s.removed(80, 90)
		}(), want: []string{consistent, neverFalls, noLate, afterSeal, linear}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, failing(c.story.run)); diff != "" {
				t.Errorf("failing checks (-want +got):\n%s", diff)
			}
		})
	}
}
