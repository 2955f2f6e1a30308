// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/internal/possession"
)

const (
	// Followers of a lease that was released act within this time, spread evenly. It bounds the stampede of many, and is
	// what a handover costs at most.
	releaseSpread = 20 * time.Millisecond

	// Followers of a silent holder act within a tenth of the lease's duration after it, and within a second.
	expirySpread    = time.Second
	expirySpreadPer = 10

	// unseenLimit is how long a candidate waits for its watch to show anything, before it reads the lease itself.
	unseenLimit = 5 * time.Second
)

// action is what a follower does next.
type action int

const (
	doWait action = iota
	doCreate
	doAcquire
	doAdopt
	doRead
)

// step is a follower's decision on an observation.
type step struct {
	action action
	// reason says why the follower waits.
	reason error
	// at is when the decision is taken anew without any change, if it is not zero.
	at time.Time
	// free is since when the lease is free, if it is.
	free time.Time
	// timing is that of the lease, for an acquisition.
	timing timing
	// attempt is the own acquisition that the lease shows, to adopt.
	attempt attempt
}

// attempt is an acquisition that was sent, with or without a known outcome.
type attempt struct {
	info   Info
	sent   time.Time
	timing timing
}

// decide says what a follower does about what it sees. Attempts are its own acquisitions of this campaign by term id; mine is
// the id of its own last term, whose work has returned. The elector began to watch at began.
func (o *Options) decide(seen observation, attempts map[string]attempt, mine string, began, now time.Time) step {
	lease := fmt.Sprintf("%s/%s", o.Namespace, o.Name)
	switch {
	case !seen.known && now.Sub(began) >= unseenLimit:
		return step{action: doRead}
	case !seen.known:
		return step{reason: seen.problem, at: began.Add(unseenLimit)}
	case seen.lease == nil && o.CreateWith != nil:
		return step{action: doCreate}
	case seen.lease == nil:
		return step{reason: possession.Missing(name(lease))}
	case !possession.HasStatus(seen.lease):
		return step{reason: possession.NotReady(name(lease))}
	}
	status := &seen.lease.Status
	holder, generation, term := ptr.Deref(status.HolderIdentity, ""), ptr.Deref(status.Generation, 0), ptr.Deref(status.Term, "")
	own, tried := attempts[term]
	if tried && possession.Shows(seen.lease, own.info) && now.Sub(own.sent) < own.timing.deadline {
		return step{action: doAdopt, attempt: own, free: seen.since, timing: own.timing}
	}
	t, err := o.timing(seen.lease.Spec.LeaseDurationSeconds)
	if err != nil {
		return step{reason: fmt.Errorf("FencedLease %s: %w", lease, err)}
	}
	var spread time.Duration
	free := seen.since
	if holder != "" && !tried && term != mine {
		free = seen.since.Add(t.lease)
		spread = min(t.lease/expirySpreadPer, expirySpread)
	} else {
		spread = min(t.lease/expirySpreadPer, releaseSpread)
	}
	at := free.Add(time.Duration(seen.spread * float64(spread)))
	if now.Before(at) {
		next := step{at: at, free: free}
		if holder != "" {
			next.reason = &HeldError{HolderIdentity: holder, Generation: generation, lease: lease, term: term}
		}
		return next
	}
	return step{action: doAcquire, free: free, timing: t}
}

// name names a lease in errors.
type name string

func (n name) String() string { return string(n) }
