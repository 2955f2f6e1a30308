// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// session carries one order out: it stamps what it finds, and then watches for the rest of the term. A session that cannot
// go on ends, and the next one begins anew: nothing is lost, as what is stamped is not stamped again.
type session struct {
	sealer *Sealer
	order  Order
	end    context.CancelFunc
	// began is when the first session of the term began.
	began time.Time
	// paused says that the session was ended until it is known again that the guards are in force. The Sealer's lock guards it.
	paused bool
	// recorded says that the lease has been seen to be sealed since the session began. The Sealer's lock guards it.
	recorded bool
	// tasks are what runs for the session.
	tasks sync.WaitGroup

	// fail ends the watches and says why. It is set before anything runs.
	fail context.CancelCauseFunc

	mu    sync.Mutex
	state State
	// failure is why objects could not be stamped, and trouble what has gone wrong with the watches since the seal.
	failure, trouble error
	// failures counts the sessions of this order that ended in a row. sealed and ended are when this one was Done and ended.
	failures      int
	sealed, ended *time.Time
	stamped       int64
	// remaining are the objects that lists have not returned yet, by target, and busy those that wait for their stamp.
	remaining map[int]int64
	busy      int64
	// regarded says that other objects are guarded than before in this term, so that older marks are nothing unusual, and
	// later counts these marks.
	regarded bool
	later    int64
	late     Late
}

func newSession(s *Sealer, order Order, end context.CancelFunc, before *session) *session {
	now := &session{
		sealer: s, order: order, end: end, began: s.options.Clock.Now(), state: Stamping, remaining: map[int]int64{},
	}
	if before == nil {
		return now
	}
	before.mu.Lock()
	defer before.mu.Unlock()
	now.began, now.stamped, now.late = before.began, before.stamped, before.late
	if !before.order.same(order) {
		now.regarded = true
		return now
	}
	// What went wrong stands until it is known to be right.
	now.failures, now.failure, now.trouble = before.failures, before.failure, before.trouble
	if before.state != Done {
		now.state = before.state
	}
	return now
}

// after returns the session if it was for the term of an order, whose guards are different.
func (s *session) after(order Order) *session {
	s.mu.Lock()
	done := s.state == Done
	s.mu.Unlock()
	if s.order.UID == order.UID && s.order.Token == order.Token {
		return s
	}
	if !done && !s.order.Sealed {
		s.sealer.options.Metrics.finished(resultSuperseded)
	}
	return nil
}

// undone reports whether an order shows that the store was restored from before the term was sealed: its lease, which is read
// from the API server each time, was sealed and is not. Stamps are undone with it. The Sealer's lock is held.
func (s *session) undone(order Order) bool {
	return !order.Sealed && (s.recorded || s.order.Sealed)
}

// status returns what has become of the order.
func (s *session) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{State: s.state, Stamped: s.stamped, Pending: s.busy, Late: s.late}
	for _, n := range s.remaining {
		status.Pending += n
	}
	switch {
	case s.failure != nil:
		status.Message = s.failure.Error()
	case s.trouble != nil && !s.settled():
		status.Message = s.trouble.Error()
	}
	return status
}

// settled reports whether the watches go on for so long that earlier trouble is over. The lock is held.
func (s *session) settled() bool {
	return s.sealed != nil && s.ended == nil && s.sealer.options.Clock.Since(*s.sealed) >= longestPause
}

// pause returns in which time a session that has ended is to be followed by another one. The lock is held.
func (s *session) pause() time.Duration {
	pause := longestPause
	if s.failures <= 5 {
		pause = firstPause << max(s.failures-1, 0)
	}
	return pause - s.sealer.options.Clock.Since(*s.ended)
}

// over reports whether the session has ended and is to be followed by another one now.
func (s *session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended != nil && s.pause() <= 0
}

// again returns when to look at the session in any case, or 0.
func (s *session) again() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended != nil:
		return max(s.pause(), time.Millisecond)
	case s.state == Done && s.trouble != nil && !s.settled():
		return longestPause
	case s.state != Done:
		return progressPause
	default:
		return 0
	}
}

// run is the life of a session.
func (s *session) run(ctx context.Context) {
	defer s.end()
	watching, fail := context.WithCancelCause(ctx)
	s.fail = fail
	err := s.stampAll(ctx, watching)
	if err == nil {
		s.done(ctx)
		// For the rest of the term.
		<-watching.Done()
		err = context.Cause(watching)
	}
	fail(err)
	s.tasks.Wait()
	s.mu.Lock()
	clear(s.remaining)
	s.mu.Unlock()
	if ctx.Err() == nil {
		s.failed(ctx, err)
	}
}

// stampAll stamps everything that is guarded, and leaves watches behind that go on. A watch that fails keeps nothing from
// being stamped: it is for what comes later.
func (s *session) stampAll(ctx, watching context.Context) error {
	targets, err := s.order.Targets(ctx)
	if err != nil {
		return err
	}
	places, err := s.watchPlaces(watching, targets)
	if err != nil {
		return err
	}
	errs := make([]error, len(targets))
	var sweeps sync.WaitGroup
	for i, target := range targets {
		sweeps.Go(func() { errs[i] = s.cover(ctx, watching, i, target, places) })
	}
	sweeps.Wait()
	return s.pardoned(errors.Join(errs...))
}

// pardoned drops missing rights of a lenient order, but keeps them as its message.
func (s *session) pardoned(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && (!s.order.Lenient || stateOf(err) != Forbidden) {
		return err
	}
	s.failure = err
	return nil
}

// cover lists one target, stamps what it finds, and watches from the version of the list.
func (s *session) cover(ctx, watching context.Context, index int, t Target, places *places) error {
	return s.sweep(ctx, sweep{
		target: t, namespace: t.Namespace, places: places,
		listed: func(version string) {
			s.tasks.Go(func() {
				if err := s.watch(watching, t, version, places); err != nil && watching.Err() == nil {
					s.fail(err)
				}
			})
		},
		remaining: func(n int64) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.remaining[index] = n
		},
	})
}

// done records that the term is sealed.
func (s *session) done(ctx context.Context) {
	s.mu.Lock()
	s.state, s.sealed = Done, ptr.To(s.sealer.options.Clock.Now())
	clear(s.remaining)
	later := s.later
	s.mu.Unlock()
	if !s.order.Sealed {
		s.sealer.options.Metrics.sealed(s.sealer.options.Clock.Since(s.began))
	} else if later > 0 && !s.regarded {
		s.sealer.options.Later(s.order, later)
	}
	s.sealer.options.Wake(ctx, s.order.Lease)
}

// failed records why the session has ended. A watch that ended after it has gone on for long is nothing unusual: the next
// session begins it anew.
func (s *session) failed(ctx context.Context, err error) {
	s.mu.Lock()
	settled := s.settled()
	s.ended = ptr.To(s.sealer.options.Clock.Now())
	s.failures++
	switch {
	case s.state != Done:
		s.state, s.failure = stateOf(err), err
	case settled:
		s.failures, s.trouble = 1, nil
	default:
		s.trouble = err
	}
	attempt := s.state != Done && !s.order.Sealed
	s.mu.Unlock()
	if attempt {
		s.sealer.options.Metrics.finished(resultFailed)
	}
	s.sealer.options.Wake(ctx, s.order.Lease)
}

// whenFree runs a task in a slot, and counts it. It returns false when ctx ends first.
func (s *session) whenFree(ctx context.Context, task func()) bool {
	s.count(&s.busy, 1)
	if !s.sealer.take(ctx) {
		s.count(&s.busy, -1)
		return false
	}
	s.tasks.Go(func() {
		defer s.count(&s.busy, -1)
		defer s.sealer.give()
		task()
	})
	return true
}

func (s *session) count(what *int64, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*what += n
}

// stampPlainly stamps one object with the term's token, and counts it.
func (s *session) stampPlainly(ctx context.Context, t Target, object *metav1.PartialObjectMetadata) error {
	switch _, err := s.stamp(ctx, t, object, s.order.Token); {
	case errors.Is(err, errGone):
		return nil
	case err != nil:
		return err
	default:
		s.count(&s.stamped, 1)
		return nil
	}
}
