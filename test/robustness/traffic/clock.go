// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// steppedClock is a clock that can be stepped, its monotonic reading as well: a holder that looks at it believes that its
// term is longer or shorter than it is. Timers run as they should.
type steppedClock struct {
	clock.RealClock
	offset atomic.Int64
}

func (c *steppedClock) step(d time.Duration) { c.offset.Add(int64(d)) }

func (c *steppedClock) Now() time.Time { return c.RealClock.Now().Add(time.Duration(c.offset.Load())) }

func (c *steppedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
