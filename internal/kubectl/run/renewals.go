// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"sync"
	"time"

	"github.com/fencedlease/fencedlease/pkg/leader"
)

// renewals keeps the moment from which followers count at the latest: that at which the last confirmed renewal was sent. It
// adds up the gaps that the elector tells, so that it is exact on the elector's own clock.
type renewals struct {
	mu       sync.Mutex
	acquired time.Time
	gaps     time.Duration
}

var _ leader.Metrics = &renewals{}

// begin notes when the acquisition of the term was sent.
func (r *renewals) begin(acquired time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acquired = acquired
}

// Acquired implements leader.Metrics: the gaps are those of the new term.
func (r *renewals) Acquired(time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps = 0
}

// Renewed implements leader.Metrics.
func (r *renewals) Renewed(gap time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps += gap
}

// Leading implements leader.Metrics.
func (r *renewals) Leading(bool) {}

// Lost implements leader.Metrics.
func (r *renewals) Lost(leader.LossReason) {}

// killAt returns when everything of a term that was lost now must be killed to be gone before followers may take the lease:
// the lease's duration after the last confirmed renewal, with a margin for the end of the processes themselves. A term that
// has expired shows the duration that counts, which may have been shortened since: two thirds of it have passed.
func (r *renewals) killAt(now time.Time, duration time.Duration, expired bool) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	confirmed := r.acquired.Add(r.gaps)
	if expired {
		duration = min(duration, now.Sub(confirmed)*3/2)
	}
	return confirmed.Add(duration - min(duration/6, maxMargin))
}

// maxMargin is for the end of processes that are killed, and for a machine under load that lets this one wait.
const maxMargin = 2 * time.Second
