// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"slices"

	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// Version is an object as it was stored for a while.
type Version struct {
	*history.ObjectState
	Epoch     int
	Name, UID string
	Revision  int64
	// From is not after its begin, and Until not before its end.
	From, Until int64
}

// begins notes that a version has ended, and that another one has begun if the object was not deleted.
func (l *Lease) begins(event *history.Event, earliest int64) {
	last := slices.IndexFunc(l.Versions, func(v *Version) bool {
		return v.Name == event.Name && v.Epoch == event.Epoch && v.Until == history.Never
	})
	if last >= 0 {
		l.Versions[last].Until = event.Observed
	}
	if !event.Deleted {
		l.Versions = append(l.Versions, &Version{
			ObjectState: event.Object, Epoch: event.Epoch, Name: event.Name, UID: event.UID, Revision: event.Revision,
			From: earliest, Until: history.Never,
		})
	}
}

// During returns the versions of an object that may have been stored at some moment of an operation.
func (l *Lease) During(meta history.Meta, op *history.Op) []*Version {
	epoch := meta.Epoch(op)
	var found []*Version
	for _, v := range l.Versions {
		if v.Name == op.Object && v.Epoch == epoch && v.From <= op.Return && op.Invoke <= v.Until {
			found = append(found, v)
		}
	}
	return found
}
