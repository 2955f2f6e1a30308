// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"sync/atomic"

	"github.com/fencedlease/fencedlease/test/postgres"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// inflict arms the fault of a call at the proxy. What it returns disarms it when the call has returned, and tells whether it
// has struck; a message that is held stays so for as long as was chosen, also when its client is gone.
func (o *writer) inflict(ctx context.Context, what choice, giveUp func()) (hit func() bool) {
	armed, struck := &atomic.Bool{}, &atomic.Bool{}
	armed.Store(true)
	strikes := func(m postgres.Message) bool {
		is := armed.Load() && m.Commits()
		if is {
			struck.Store(true)
		}
		return is
	}
	returned := make(chan struct{})
	switch what.fault {
	case LostAnswer:
		o.proxy.LoseAnswer(strikes)
	case LateCommit:
		hold := o.proxy.Hold(strikes)
		o.holds(ctx, what, hold, returned, hold.Abandon)
	case GivesUp:
		o.holds(ctx, what, o.proxy.Hold(strikes), returned, giveUp)
	case Pause:
		seen := 0
		o.holds(ctx, what, o.proxy.Hold(func(postgres.Message) bool {
			if !armed.Load() {
				return false
			}
			seen++
			is := seen == what.message+1
			if is {
				struck.Store(true)
			}
			return is
		}), returned, func() {})
	}
	return func() bool {
		armed.Store(false)
		close(returned)
		return struck.Load()
	}
}

// holds lets a held message go on after a while, and does something to its client before.
func (o *writer) holds(ctx context.Context, what choice, hold *postgres.Hold, returned <-chan struct{}, meanwhile func()) {
	o.faults.Go(func() {
		select {
		case <-hold.Entered():
		case <-returned:
			if len(hold.Entered()) == 0 {
				return // the call has not come that far
			}
		}
		meanwhile()
		history.Wait(ctx, what.hold)
		hold.Release()
	})
}
