// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/possession"
)

// Update acquires, renews or releases, as the record and the lock's own term ask for; see the package comment. A nil
// answer means that the elector leads, or that the lease is released.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	decided, own := l.decided, l.own
	l.decided = nil
	l.mu.Unlock()
	switch {
	case record.HolderIdentity == "":
		return l.release(ctx, own)
	case record.HolderIdentity != l.identity:
		return fmt.Errorf("update FencedLease %s: the lock of %q cannot make %q the holder", l.leases, l.identity, record.HolderIdentity)
	case own != nil && !own.releasing:
		return l.renew(ctx, own, record)
	default:
		return l.acquire(ctx, decided, record)
	}
}

// acquire opens a new term on the lease as the elector's last Get returned it.
func (l *Lock) acquire(ctx context.Context, decided *v1alpha1.FencedLease, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	stopping := l.stopping
	l.own = nil // a term whose release was sent is over for this lock
	l.mu.Unlock()
	if stopping != nil {
		return stopping
	}
	if decided == nil {
		return l.conflict("the lease was not read since the last write, read it and decide anew", nil)
	}
	// An elector that takes itself for the holder sends the acquireTime of the term that has ended, so it is not used.
	patch, term, err := possession.Acquisition(decided, l.identity, possession.NewTermID(), record.RenewTime.Time)
	if err != nil {
		return err
	}
	lease, err := l.leases.PatchStatus(ctx, patch)
	if err != nil {
		return l.notAcquired(ctx, err)
	}
	l.warnOfDuration(decided, record)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = lease
	term.ResourceVersion = lease.ResourceVersion
	l.own = &ownTerm{term: term}
	l.lost = nil
	return l.handOver(lease)
}

// notAcquired names the holder where another write came first: a conflict by the resourceVersion, or a refusal by the
// rules of the FencedLease.
func (l *Lock) notAcquired(ctx context.Context, err error) error {
	if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("acquire FencedLease %s: %w", l.leases, err)
	}
	lease, readErr := l.leases.Get(ctx)
	if readErr != nil {
		return l.conflict("the lease has changed", err)
	}
	l.mu.Lock()
	l.latest = lease
	l.mu.Unlock()
	if holder := ptr.Deref(lease.Status.HolderIdentity, ""); holder != "" {
		return l.conflict(fmt.Sprintf("%q holds the lease under generation %d", holder, ptr.Deref(lease.Status.Generation, 0)), err)
	}
	return l.conflict("the lease has changed and nobody holds it", err)
}

// renew keeps the own term.
func (l *Lock) renew(ctx context.Context, own *ownTerm, record resourcelock.LeaderElectionRecord) error {
	lease, err := l.leases.PatchStatus(ctx, possession.Renewal(own.term, record.RenewTime.Time))
	if err != nil {
		return l.refused(ctx, "renew", own, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.see(lease); l.own != own {
		return l.conflict("the term has ended", nil)
	}
	return l.handOver(lease)
}

// handOver tells the elector that it leads, as soon as the own term may write. It needs mu.
func (l *Lock) handOver(lease *v1alpha1.FencedLease) error {
	own := l.own
	own.ready = own.ready || possession.Sealed(lease, own.term)
	if !own.ready {
		return fmt.Errorf("FencedLease %s: %w: guarded objects are still to be stamped with generation %d", l.leases, ErrSealPending, own.term.Generation)
	}
	own.handed = true
	return nil
}

// release gives the own term up. The term counts as over before the request leaves, as the server may have ended it
// whatever the answer is.
func (l *Lock) release(ctx context.Context, own *ownTerm) error {
	l.mu.Lock()
	l.stopping = nil // the elector releases when it has stopped leading
	lost := l.lost
	l.lost = nil
	if own != nil {
		own.releasing = true
	}
	l.mu.Unlock()
	if own == nil {
		// The elector repeats a release that met a conflict, so it is told of the loss once.
		if lost != nil {
			return lost
		}
		return fmt.Errorf("release FencedLease %s: %w", l.leases, ErrNotHeld)
	}
	lease, err := l.leases.PatchStatus(ctx, possession.Release(own.term))
	if err != nil {
		err = l.refused(ctx, "release", own, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = nil
	if err != nil {
		return err
	}
	l.latest, l.own = lease, nil
	return nil
}

// refused explains why a renewal or release failed. If the answer means that the term is lost, it is a conflict that says
// who holds the lease now. After any other failure the term may still be current.
func (l *Lock) refused(ctx context.Context, verb string, own *ownTerm, err error) error {
	lost, lease := l.leases.Ended(ctx, own.term, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease != nil {
		l.latest = lease
	}
	switch {
	case lost == nil:
		return fmt.Errorf("%s FencedLease %s: %w", verb, l.leases, err)
	case l.own != own:
		return l.conflict("the term has ended", err)
	}
	l.end(lost)
	return lost
}

func (l *Lock) conflict(why string, cause error) error {
	return possession.NewConflictError(l.leases.Name, fmt.Sprintf("acquire FencedLease %s: %s", l.leases, why), cause)
}
