// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/possession"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// Info is what identifies a term: Namespace, Name and UID of the FencedLease, Generation and ID of the possession, its
// Holder and AcquireTime by the elector's clock, the ResourceVersion of the FencedLease right after the acquisition, and
// Seal. It is a plain value.
type Info = possession.Term

// Term is one possession of a FencedLease by an Elector. It is handed to the work that runs under it. Its methods may be
// called from any goroutine, also after the term has ended.
type Term struct {
	info  Info
	clock clock.PassiveClock
	view  *view
	done  chan struct{}
	ready chan struct{}

	mu sync.Mutex
	// endWork ends the context of the work.
	endWork context.CancelCauseFunc
	// ended says why the term is over, or is nil.
	ended error
	// sealed says that ready is closed.
	sealed bool
	// confirmed is when the last confirmed renewal, or the acquisition, was sent. It has a monotonic reading.
	confirmed time.Time
	timing    timing
	// failure is how the last renewal failed, or nil.
	failure error
}

// newTerm returns the term of an acquisition that was sent at the time, and the context of its work.
func newTerm(ctx context.Context, info Info, c clock.PassiveClock, v *view, sent time.Time, t timing) (*Term, context.Context) {
	work, end := context.WithCancelCause(ctx)
	return &Term{
		info: info, clock: c, view: v, done: make(chan struct{}), ready: make(chan struct{}),
		endWork: end, confirmed: sent, timing: t,
	}, work
}

// Info returns what identifies the term. It never changes.
func (t *Term) Info() Info { return t.info }

// Token returns what a writer of this term presents, without an operation. It never changes.
func (t *Term) Token() token.Token { return t.info.Token() }

// Lease names the FencedLease.
func (t *Term) Lease() types.NamespacedName {
	return types.NamespacedName{Namespace: t.info.Namespace, Name: t.info.Name}
}

// Guards returns the guards of the lease as the elector last saw it, which may be late by any time. It must not be changed.
// It is nil if the lease was deleted.
func (t *Term) Guards() []v1alpha1.Guard {
	seen, _ := t.view.look()
	if seen.lease == nil || seen.lease.UID != t.info.UID {
		return nil
	}
	return seen.lease.Spec.Guards
}

// Done returns a channel that is closed when the term has ended: lost, or released. The context of the work ends before, and
// also when the work is only to drain; a term that drains is still held and may write.
func (t *Term) Done() <-chan struct{} { return t.done }

// Err returns nil while the term is valid by this process's knowledge, and else why it has ended: a *LostError or
// ErrReleased. It looks at the clock: a process that was paused beyond the renew deadline gets an error from the first call
// on. Once it has returned an error it always does.
func (t *Term) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
	return t.ended
}

// Ready waits until the term may write as far as seals go: until every guarded object is stamped with its generation, if the
// handover asks for it. Work begins only then, so within it Ready returns at once. The error is the term's if it ends
// before, or that of ctx.
func (t *Term) Ready(ctx context.Context) error {
	select {
	case <-t.ready:
		return t.Err()
	default:
	}
	select {
	case <-t.ready:
		return t.Err()
	case <-t.done:
		return t.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// expire ends the term if its deadline is over. It needs mu.
func (t *Term) expire() {
	if t.ended == nil && t.clock.Since(t.confirmed) >= t.timing.deadline {
		t.finish(possession.NewExpiredError(t.info, t.failure))
	}
}

// finish ends the term. It needs mu. The context of the work ends before anybody can learn of it.
func (t *Term) finish(reason error) {
	t.ended = reason
	t.endWork(reason)
	close(t.done)
}

// end ends the term, unless it has ended.
func (t *Term) end(reason error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.expire(); t.ended == nil {
		t.finish(reason)
	}
}

// confirm takes note of the confirmation of a renewal that was sent at the time. One that comes after the deadline is too
// late. It returns how long before it the last confirmed one was sent.
func (t *Term) confirm(sent time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
	gap := sent.Sub(t.confirmed)
	if t.ended == nil {
		t.confirmed, t.failure = sent, nil
	}
	return gap
}

// failed takes note of how a renewal failed, to explain an end by the deadline.
func (t *Term) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = err
}

// retime takes over how long things take, for another duration of the lease.
func (t *Term) retime(to timing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
	t.timing = to
}

func (t *Term) currentTiming() timing {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.timing
}

// age returns how long ago the last confirmed renewal was sent.
func (t *Term) age() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clock.Since(t.confirmed)
}

// left returns how long the term is still valid without another renewal.
func (t *Term) left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.timing.deadline - t.clock.Since(t.confirmed)
}

// observe ends the term if the lease does not show it any more, and makes it ready if the lease shows it sealed. The view
// is at least as new as the acquisition.
func (t *Term) observe(seen observation) {
	switch {
	case seen.lease == nil || seen.lease.UID != t.info.UID:
		t.end(possession.NewLostError(t.info, nil, true, nil))
	case !possession.Shows(seen.lease, t.info):
		t.end(possession.NewLostError(t.info, seen.lease, false, nil))
	case possession.Sealed(seen.lease, t.info):
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.sealed {
			t.sealed = true
			close(t.ready)
		}
	}
}
