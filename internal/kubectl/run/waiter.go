// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/pkg/leader"
)

// waiter says why the lease is not held yet, and gives up where waiting is of no use or not wanted.
type waiter struct {
	options *Options
	cancel  context.CancelCauseFunc
	done    chan struct{}
	timer   sync.WaitGroup

	mu sync.Mutex
	// over says that nothing is waited for any more.
	over bool
	// last is the reason that was told last.
	last error
}

func newWaiter(o *Options, cancel context.CancelCauseFunc) *waiter {
	w := &waiter{options: o, cancel: cancel, done: make(chan struct{})}
	if o.Timeout == 0 {
		return w
	}
	timer := o.Clock.NewTimer(o.Timeout)
	w.timer.Go(func() {
		defer timer.Stop()
		select {
		case <-timer.C():
			w.expire()
		case <-w.done:
		}
	})
	return w
}

// close ends the waiting. It may be called again.
func (w *waiter) close() {
	w.mu.Lock()
	if !w.over {
		w.over = true
		close(w.done)
	}
	w.mu.Unlock()
	w.timer.Wait()
}

// expire gives up as the lease was waited for long enough.
func (w *waiter) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	reason := w.last
	if reason == nil {
		reason = errors.New("the API server has not told of the lease yet")
	}
	err := fmt.Errorf("%w; this has not changed within %s: give a longer --timeout", reason, w.options.Timeout)
	if held := (*leader.HeldError)(nil); errors.As(reason, &held) {
		err = cli.Refused(err)
	}
	w.cancel(err)
}

// told is called by the elector with the reason for which it does not lead, each time it changes.
func (w *waiter) told(reason error) {
	w.mu.Lock()
	w.last = reason
	w.mu.Unlock()
	var held *leader.HeldError
	switch {
	case errors.Is(reason, leader.ErrForbidden):
		w.cancel(fmt.Errorf("%w: the roles that are needed are printed by: kubectl fencedlease rbac %s", reason, w.options.Name))
	case errors.Is(reason, leader.ErrMissing), errors.Is(reason, leader.ErrLeaseTooShort):
		w.cancel(reason)
	case errors.As(reason, &held) && !w.options.Wait:
		w.cancel(cli.Refused(fmt.Errorf("%w: leave --wait=false out to wait until it is free", reason)))
	case !w.options.Wait && !errors.Is(reason, leader.ErrSealPending):
		w.cancel(fmt.Errorf("%w: leave --wait=false out to wait", reason))
	default:
		w.options.Say("Waiting: %v.", reason)
	}
}
