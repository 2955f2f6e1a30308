// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package destination

import "slices"

// entry is a change that was committed, as an epoch of the database has it.
type entry struct {
	Change
	epoch int
	row   string
	// at is its commit, nth its number among the changes of the control row.
	at, nth int
	record  *Record
}

type key struct{ row, operation string }

// index finds what belongs together.
type index struct {
	*Run
	calls map[int64]*Call
	// For each epoch, the changes by call, by operation in the order of commits, and by control row in the order of commits.
	byCall []map[int64]*entry
	byKey  []map[key][]*entry
	byRow  []map[string][]*entry
}

func newIndex(run *Run) *index {
	x := &index{Run: run, calls: map[int64]*Call{}}
	for _, call := range run.Calls {
		x.calls[call.ID] = call
	}
	for number, epoch := range run.Epochs {
		byCall, byKey, byRow := map[int64]*entry{}, map[key][]*entry{}, map[string][]*entry{}
		for at, commit := range epoch.Commits {
			for _, change := range commit.Changes {
				e := &entry{Change: change, epoch: number, row: commit.Row, at: at, nth: len(byRow[commit.Row])}
				if i := slices.IndexFunc(commit.Records, func(r Record) bool { return r.Call == change.Call }); i >= 0 {
					e.record = &commit.Records[i]
				}
				byCall[change.Call] = e
				k := key{commit.Row, change.Operation}
				byKey[k] = append(byKey[k], e)
				byRow[commit.Row] = append(byRow[commit.Row], e)
			}
		}
		x.byCall, x.byKey, x.byRow = append(x.byCall, byCall), append(x.byKey, byKey), append(x.byRow, byRow)
	}
	return x
}

// span calls f with the epochs in which a call was under way, until it returns true, and returns whether it has.
func (x *index) span(call *Call, f func(epoch int) bool) bool {
	for e := call.First; e <= call.Last && e < len(x.Epochs); e++ {
		if f(e) {
			return true
		}
	}
	return false
}

// isOf tells whether a record is that of a change.
func (r Record) isOf(e *entry) bool {
	return e != nil && e.record != nil && e.record.Call == r.Call && e.record.Operation == r.Operation &&
		e.record.Token == r.Token && e.record.AppliedAt.Equal(r.AppliedAt)
}
