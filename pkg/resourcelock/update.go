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
	patch, term, err := acquisition(decided, l.identity, newTermID(), record)
	if err != nil {
		return err
	}
	lease, err := l.leases.patchStatus(ctx, patch)
	if err != nil {
		return l.notAcquired(ctx, err)
	}
	l.warnOfDuration(decided, record)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = lease
	term.ResourceVersion = lease.ResourceVersion
	l.own = &possession{term: term}
	l.lost = nil
	return l.handOver(lease)
}

// notAcquired names the holder where another write came first: a conflict by the resourceVersion, or a refusal by the
// rules of the FencedLease.
func (l *Lock) notAcquired(ctx context.Context, err error) error {
	if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("acquire FencedLease %s: %w", l.leases, err)
	}
	lease, readErr := l.leases.get(ctx)
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
func (l *Lock) renew(ctx context.Context, own *possession, record resourcelock.LeaderElectionRecord) error {
	lease, err := l.leases.patchStatus(ctx, renewal(own.term, record))
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
	own.ready = own.ready || own.term.Seal == v1alpha1.SealNotRequired ||
		ptr.Deref(lease.Status.SealedGeneration, 0) == own.term.Generation
	if !own.ready {
		return fmt.Errorf("FencedLease %s: %w: guarded objects are still to be stamped with generation %d", l.leases, ErrSealPending, own.term.Generation)
	}
	own.handed = true
	return nil
}

// release gives the own term up. The term counts as over before the request leaves, as the server may have ended it
// whatever the answer is.
func (l *Lock) release(ctx context.Context, own *possession) error {
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
	lease, err := l.leases.patchStatus(ctx, release(own.term))
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

// refused explains why a renewal or release failed. The rules of the FencedLease refuse a write of a term that has ended
// with 422, and a lease that is gone is 404: the term is lost then, and the answer is a conflict that says who holds the
// lease now. After any other failure the term may still be current.
func (l *Lock) refused(ctx context.Context, verb string, own *possession, err error) error {
	if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s FencedLease %s: %w", verb, l.leases, err)
	}
	lease, readErr := l.leases.get(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if readErr == nil {
		l.latest = lease
		if shows(lease, own.term) {
			return fmt.Errorf("%s FencedLease %s: %w", verb, l.leases, err)
		}
	}
	if l.own != own {
		return l.conflict("the term has ended", err)
	}
	deleted := apierrors.IsNotFound(err) || apierrors.IsNotFound(readErr) || (readErr == nil && lease.UID != own.term.UID)
	l.end(lease, deleted, err)
	return l.lost
}

func (l *Lock) conflict(why string, cause error) error {
	return &conflictError{
		lease:   l.leases.name,
		message: fmt.Sprintf("acquire FencedLease %s: %s", l.leases, why),
		cause:   cause,
	}
}
