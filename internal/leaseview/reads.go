// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseview

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

var (
	// ErrStopped is the cause of every answer that could not be given because the view has been stopped.
	ErrStopped = errors.New("the view of the leases has been stopped")
	// ErrReadTimeout is the cause of a read that took longer than Options.ReadTimeout.
	ErrReadTimeout = errors.New("the read of the lease took too long")

	errNoCallers = errors.New("nobody waits for the read any more")
)

// sharedReads runs at most one read per lease. A read that has begun is never joined: who arrives while it runs shares the
// next one.
type sharedReads struct {
	read    func(ctx context.Context, key types.NamespacedName) (*v1alpha1.FencedLease, error)
	timeout time.Duration
	clock   clock.WithDelayedExecution
	// base ends when the view stops.
	base context.Context //nolint:containedctx // reads outlive their callers and end with the view
	wg   sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	slots   map[types.NamespacedName]*slot
}

// slot holds the reads of one lease. It exists as long as a read runs.
type slot struct {
	// running has begun.
	running *sharedRead
	// next begins when running has ended. It is nil if nobody has arrived since running began.
	next *sharedRead
}

// sharedRead is one read and those who wait for it.
type sharedRead struct {
	// done is closed when lease and err are set.
	done  chan struct{}
	lease *v1alpha1.FencedLease
	err   error

	// callers and cancel are guarded by sharedReads.mu. cancel is nil until the read begins.
	callers int
	cancel  context.CancelCauseFunc
}

// get returns the lease as of a read that began after the call of get.
func (s *sharedReads) get(ctx context.Context, key types.NamespacedName) (*v1alpha1.FencedLease, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("read FencedLease %s: %w", key, context.Cause(ctx))
	}
	r, err := s.join(key)
	if err != nil {
		return nil, fmt.Errorf("read FencedLease %s: %w", key, err)
	}
	select {
	case <-r.done:
		return r.lease, r.err
	case <-ctx.Done():
		s.leave(key, r)
		return nil, &abandonedError{fmt.Errorf("read FencedLease %s: %w", key, context.Cause(ctx))}
	}
}

// abandonedError marks the answer to a caller whose own context ended before the read.
type abandonedError struct{ error }

func (e *abandonedError) Unwrap() error { return e.error }

// join returns the read that the caller has to wait for: one that has not begun when join is called.
func (s *sharedReads) join(key types.NamespacedName) (*sharedRead, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, ErrStopped
	}
	sl := s.slots[key]
	if sl == nil {
		r := &sharedRead{done: make(chan struct{}), callers: 1}
		s.slots[key] = &slot{running: r}
		ctx := s.begin(r)
		s.wg.Go(func() { s.run(ctx, key, r) })
		return r, nil
	}
	if sl.next == nil {
		sl.next = &sharedRead{done: make(chan struct{})}
	}
	sl.next.callers++
	return sl.next, nil
}

// leave takes a caller off a read. A read that nobody waits for ends, or never begins.
func (s *sharedReads) leave(key types.NamespacedName, r *sharedRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.callers--
	if r.callers > 0 {
		return
	}
	if r.cancel != nil {
		r.cancel(errNoCallers)
	} else if sl := s.slots[key]; sl != nil && sl.next == r {
		sl.next = nil
	}
}

// begin marks a read as begun and returns its context, which is no caller's. s.mu is held.
func (s *sharedReads) begin(r *sharedRead) context.Context {
	ctx, cancel := context.WithCancelCause(s.base)
	r.cancel = cancel
	return ctx
}

// run makes reads of one lease as long as somebody waits for one.
func (s *sharedReads) run(ctx context.Context, key types.NamespacedName, r *sharedRead) {
	for r != nil {
		cancel := r.cancel
		timer := s.clock.AfterFunc(s.timeout, func() { cancel(ErrReadTimeout) })
		r.lease, r.err = s.read(ctx, key)
		timer.Stop()
		switch {
		case r.err != nil && ctx.Err() != nil:
			r.lease, r.err = nil, fmt.Errorf("read FencedLease %s: %w", key, context.Cause(ctx))
		case r.err != nil:
			r.lease, r.err = nil, fmt.Errorf("read FencedLease %s: %w", key, r.err)
		}
		cancel(nil)
		ended := r
		ctx, r = s.end(key)
		close(ended.done)
	}
}

// end takes the read that has ended off its slot and begins the next one, if there is one.
func (s *sharedReads) end(key types.NamespacedName) (context.Context, *sharedRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.slots[key].next
	if next != nil && !s.stopped {
		s.slots[key] = &slot{running: next}
		return s.begin(next), next
	}
	delete(s.slots, key)
	if next != nil {
		next.err = fmt.Errorf("read FencedLease %s: %w", key, ErrStopped)
		close(next.done)
	}
	return nil, nil
}

// stop refuses new callers and waits until the running reads, whose context the caller has ended, have returned.
func (s *sharedReads) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.wg.Wait()
}
