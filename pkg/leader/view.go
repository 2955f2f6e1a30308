// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/possession"
)

// observation is the lease as an elector last saw it: by its watch, which may be late by any time, or by the answer to a
// request of its own. Nothing is decided on it alone: acquisitions are conditioned on its resourceVersion.
type observation struct {
	// known says that anything was seen at all.
	known bool
	// lease is the lease, or nil if there is none. It is shared and must not be changed.
	lease *v1alpha1.FencedLease
	// since is when the record of the lease was last seen to change: an acquisition, renewal, release, another duration or
	// another lease. It has a monotonic reading.
	since time.Time
	// spread is a random number from 0 to 1, drawn for each record, by which followers do not act all at once.
	spread float64
	// version counts the changes of the view.
	version uint64
	// problem is why the watch does not work, or nil.
	problem error
}

// view merges what the watch and the answers to requests say of the lease.
type view struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	seen     observation
	revision string // the resourceVersion that seen is of
	record   string
	changed  chan struct{} // closed at the next change
}

func newView(c clock.PassiveClock) *view {
	return &view{clock: c, changed: make(chan struct{})}
}

// look returns what was last seen and a channel that is closed when that changes.
func (v *view) look() (observation, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen, v.changed
}

// saw takes note of the lease, from the watch or an answer. An older one than was seen before is left out: it was on its
// way for longer.
func (v *view) saw(lease *v1alpha1.FencedLease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.older(lease.ResourceVersion) {
		return
	}
	v.set(lease, lease.ResourceVersion)
}

// gone takes note that there was no lease at the revision.
func (v *view) gone(revision string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.older(revision) {
		return
	}
	v.set(nil, revision)
}

// read takes note of a linearizable read, with nil for no lease, that began when the view was at the version. If nothing was
// seen since then the read is newer than the view, also if its resourceVersion is lower: the store was restored.
func (v *view) read(lease *v1alpha1.FencedLease, version uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case lease == nil && v.seen.version == version:
		v.set(nil, v.revision)
	case lease != nil && (v.seen.version == version || !v.older(lease.ResourceVersion)):
		v.set(lease, lease.ResourceVersion)
	}
}

// watching takes note of why the watch does not work, or of nil that it does.
func (v *view) watching(problem error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if problem == nil && v.seen.problem == nil {
		return
	}
	v.seen.problem = problem
	v.wake()
}

// older reports whether the revision is older than the view. It needs mu.
func (v *view) older(revision string) bool {
	if v.revision == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(revision, v.revision)
	return err == nil && order < 0
}

// set needs mu.
func (v *view) set(lease *v1alpha1.FencedLease, revision string) {
	record := ""
	if lease != nil {
		raw, err := possession.Record(lease)
		if err != nil {
			raw = []byte(revision) // any change counts as a sign of life then
		}
		record = string(raw)
	}
	if !v.seen.known || record != v.record {
		v.seen.since = v.clock.Now()
		v.seen.spread = rand.Float64() //nolint:gosec // spreads requests, guards nothing
	}
	v.seen.known, v.seen.lease = true, lease
	v.seen.version++
	v.revision, v.record = revision, record
	v.wake()
}

// wake needs mu.
func (v *view) wake() {
	close(v.changed)
	v.changed = make(chan struct{})
}
