// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/fencedlease/fencedlease/internal/possession"
)

// renew keeps the term until ctx or the term ends. Requests are bounded, so that one whose answer is lost leaves time for
// another.
func (r *run) renew(ctx context.Context, term *Term) {
	logger := klog.FromContext(ctx)
	failures := 0
	next := term.currentTiming().retry - term.age()
	for r.pause(ctx, term, next) {
		t := term.currentTiming()
		sent := r.options.Clock.Now()
		lease, err := r.patch(ctx, possession.Renewal(term.info, sent), t.request)
		if err == nil {
			failures, next = 0, t.retry-r.options.Clock.Since(sent)
			r.view.saw(lease)
			r.options.Metrics.Renewed(term.confirm(sent))
			continue
		}
		if ctx.Err() != nil {
			return
		}
		failures++
		term.failed(err)
		logger.V(1).Info("Renewal failed", "lease", r.ref(), "token", term.info.Token().String(), "failures", failures, "err", err)
		if lost := r.ended(ctx, term, err, t.request); lost != nil {
			term.end(lost)
			return
		}
		// Time that the request has already taken is part of the pause.
		next = pause(failures, t.retry) - r.options.Clock.Since(sent)
	}
}

// ended finds out whether the answer to a renewal means that the term has ended. A lease that could not be read says nothing
// yet: the next renewal does, or the deadline ends the term.
func (r *run) ended(ctx context.Context, term *Term, answer error, bound time.Duration) *LostError {
	limited, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	seen, _ := r.view.look()
	lost, found := r.writes.Ended(limited, term.info, answer)
	if found == nil && (lost == nil || !lost.Deleted) {
		return nil
	}
	r.view.read(found, seen.version)
	return lost
}

// pause waits and reports whether the term is still to be kept.
func (r *run) pause(ctx context.Context, term *Term, d time.Duration) bool {
	timer := r.options.Clock.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-term.done:
	case <-timer.C():
	}
	return ctx.Err() == nil && term.Err() == nil
}

// guard ends the term when the lease shows another one or the deadline is over, whatever becomes of requests, and makes it
// ready when it is sealed. It returns when ctx or the term ends.
func (r *run) guard(ctx context.Context, term *Term) {
	var seconds int32
	for term.Err() == nil && ctx.Err() == nil {
		seen, changed := r.view.look()
		term.observe(seen)
		if seen.lease != nil && seen.lease.Spec.LeaseDurationSeconds != seconds {
			seconds = seen.lease.Spec.LeaseDurationSeconds
			t, err := r.options.heldTiming(seconds)
			if err != nil {
				r.event(seen.lease, corev1.EventTypeWarning, reasonTooShort, "%s holds the lease and uses the default renew deadline %s: %v", r.options.Identity, t.deadline, err)
			}
			term.retime(t)
		}
		deadline := r.options.Clock.NewTimer(max(term.left(), 0))
		select {
		case <-ctx.Done():
		case <-term.done:
		case <-changed:
		case <-deadline.C():
		}
		deadline.Stop()
	}
}

// release gives the term up. The term counts as over before the request leaves, as the server may have ended it whatever the
// answer is. It is tried as long as followers have to wait for the lease's expiry anyway.
func (r *run) release(ctx context.Context, term *Term) {
	left := term.left()
	term.end(ErrReleased)
	logger := klog.FromContext(ctx)
	t := term.currentTiming()
	until := r.options.Clock.Now().Add(max(left, t.request))
	for failures := 1; ; failures++ {
		lease, err := r.patch(ctx, possession.Release(term.info), t.request)
		if err == nil {
			r.view.saw(lease)
			return
		}
		if lostRace(err) {
			logger.V(1).Info("Term had ended before its release", "lease", r.ref(), "token", term.info.Token().String(), "err", err)
			return
		}
		next := r.options.Clock.Now().Add(pause(failures, t.retry))
		if !next.Before(until) {
			logger.Info("Could not release the lease, it expires", "lease", r.ref(), "token", term.info.Token().String(), "err", err)
			return
		}
		r.wait(ctx, nil, next)
	}
}
