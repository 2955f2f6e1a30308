// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/klog/v2"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/possession"
)

const (
	// A request that failed is repeated after 25 to 50 milliseconds, later up to the retry period.
	firstPause = 50 * time.Millisecond

	// freeRaces is how many acquisitions in a row may lose to another write before the next one waits.
	freeRaces = 3

	// maxAttempts bounds how many acquisitions of unknown outcome a campaign remembers. What falls out is waited for like the
	// term of another holder.
	maxAttempts = 16

	// fallbackRequest and fallbackPause are for requests while the lease, and so its timing, is not known.
	fallbackRequest = 5 * time.Second
	fallbackPause   = 2 * time.Second
)

// campaign waits until the elector has acquired the lease, and returns the term and the context of its work.
func (r *run) campaign(ctx context.Context) (*Term, context.Context, error) {
	attempts := map[string]attempt{}
	failures, races := 0, 0
	for ctx.Err() == nil {
		seen, changed := r.view.look()
		next := r.options.decide(seen, attempts, r.mine, r.began, r.options.Clock.Now())
		r.report(ctx, seen, next.reason)
		var err error
		switch next.action {
		case doWait:
			failures, races = 0, 0
			r.wait(ctx, changed, next.at)
			continue
		case doAdopt:
			info := next.attempt.info
			info.ResourceVersion = seen.lease.ResourceVersion
			term, work := r.won(ctx, info, next.attempt.sent, next)
			return term, work, nil
		case doRead:
			err = r.read(ctx, fallbackRequest)
		case doCreate:
			err = r.create(ctx, seen)
		case doAcquire:
			var term *Term
			var work context.Context
			term, work, err = r.acquire(ctx, seen, next, attempts)
			switch {
			case errors.Is(err, errNoGeneration):
				return nil, nil, err
			case term != nil:
				return term, work, nil
			case err == nil:
				races++
			}
		}
		if err != nil && ctx.Err() == nil {
			failures++
			r.report(ctx, seen, explain(r.writes, err))
		}
		// A race that was lost is decided anew at once, on what was read. Only many in a row are spread.
		if slow := failures + max(0, races-freeRaces); slow > 0 {
			longest := next.timing.retry
			if longest == 0 {
				longest = fallbackPause
			}
			r.wait(ctx, nil, r.options.Clock.Now().Add(pause(slow, longest)))
		}
	}
	r.withdraw(ctx, attempts)
	return nil, nil, context.Cause(ctx)
}

// pause is how long to wait after a number of failures in a row.
func pause(failures int, longest time.Duration) time.Duration {
	p := longest
	if failures < 10 {
		p = min(firstPause<<(failures-1), longest)
	}
	return p/2 + time.Duration(rand.Int64N(int64(p/2)+1)) //nolint:gosec // spreads requests, guards nothing
}

// wait returns when the channel is closed, at the time if it is not zero, or when ctx ends.
func (r *run) wait(ctx context.Context, changed <-chan struct{}, at time.Time) {
	var due <-chan time.Time
	if !at.IsZero() {
		timer := r.options.Clock.NewTimer(at.Sub(r.options.Clock.Now()))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case <-due:
	}
}

var errNoGeneration = errors.New("no generation is left")

// acquire sends an acquisition on the condition that the lease is still as it was seen. It returns no term and no error if
// another write came first: the lease has then been read anew, live from the server.
func (r *run) acquire(ctx context.Context, seen observation, next step, attempts map[string]attempt) (*Term, context.Context, error) {
	sent := r.options.Clock.Now()
	patch, info, err := possession.Acquisition(seen.lease, r.options.Identity, possession.NewTermID(), sent)
	if err != nil {
		return nil, nil, errors.Join(errNoGeneration, err)
	}
	if len(attempts) >= maxAttempts {
		clear(attempts)
	}
	attempts[info.ID] = attempt{info: info, sent: sent, timing: next.timing}

	lease, err := r.patch(ctx, patch, next.timing.request)
	if err == nil {
		r.view.saw(lease)
		info.ResourceVersion = lease.ResourceVersion
		term, work := r.won(ctx, info, sent, next)
		return term, work, nil
	}
	// Also a conflict may come from the own acquisition, if the transport sent it twice. The read tells: decide adopts a term
	// that is the own one. Conditions that the controller writes make a conflict too, and are no sign of life of the holder:
	// since stays what it was then, and the next attempt follows at once.
	readErr := r.read(ctx, next.timing.request)
	if utilnet.IsConnectionRefused(err) || answered(err) && readErr == nil && !r.showsNow(info) {
		delete(attempts, info.ID)
	}
	if readErr != nil || !lostRace(err) || r.unchanged(seen) {
		return nil, nil, err
	}
	return nil, nil, nil
}

// answered reports whether an error is a definite answer of the API server: the request was refused.
func answered(err error) bool { return lostRace(err) || apierrors.IsForbidden(err) }

func (r *run) showsNow(info Info) bool {
	seen, _ := r.view.look()
	return seen.lease != nil && possession.Shows(seen.lease, info)
}

// unchanged reports whether the lease is still the version that was seen.
func (r *run) unchanged(seen observation) bool {
	again, _ := r.view.look()
	return again.lease != nil && again.lease.ResourceVersion == seen.lease.ResourceVersion
}

// lostRace reports whether an acquisition was refused because the lease had changed: by its resourceVersion, or by the rules
// of the FencedLease; or because it is gone.
func lostRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err)
}

// read reads the lease, live from the server, into the view.
func (r *run) read(ctx context.Context, bound time.Duration) error {
	seen, _ := r.view.look()
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	lease, err := r.writes.Get(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	r.view.read(lease, seen.version)
	return nil
}

// create creates the missing lease. That somebody else has is as good.
func (r *run) create(ctx context.Context, seen observation) error {
	ctx, cancel := context.WithTimeout(ctx, fallbackRequest)
	defer cancel()
	err := r.writes.Create(ctx, r.options.CreateWith)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	// The watch may not have shown it yet.
	lease, err := r.writes.Get(ctx)
	if err != nil {
		return err
	}
	r.view.read(lease, seen.version)
	return nil
}

// patch sends a patch of the status. If no answer comes in time its connection may be dead, and the next request takes a new
// one.
func (r *run) patch(ctx context.Context, patch possession.Patch, bound time.Duration) (*v1alpha1.FencedLease, error) {
	limited, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	lease, err := r.writes.PatchStatus(limited, patch)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		r.connections.CloseAll()
	}
	return lease, err
}

// withdraw gives up what a campaign that has ended may have acquired without learning of it. It names the attempt's term, so
// it can end no other.
func (r *run) withdraw(ctx context.Context, attempts map[string]attempt) {
	logger := klog.FromContext(ctx)
	for _, a := range attempts {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timing.request)
		_, err := r.writes.PatchStatus(limited, possession.Release(a.info))
		cancel()
		if err != nil && !lostRace(err) {
			logger.Info("Could not withdraw an acquisition of unknown outcome, it expires", "lease", r.ref(), "token", a.info.Token().String(), "err", err)
			return // the others would take as long
		}
	}
}
