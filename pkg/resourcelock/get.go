// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/possession"
)

// Get reads the lease from the server and returns its record and the bytes that change with each renewal; see the
// package comment for what counts. A missing lease is apierrors.IsNotFound, a lease without a status is ErrNotReady.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	lease, err := l.leases.Get(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.decided = nil
		if apierrors.IsNotFound(err) {
			l.lose(nil, true, err)
		}
		return nil, nil, err
	}
	l.see(lease)
	if !possession.HasStatus(lease) {
		l.decided = nil
		return nil, nil, possession.NotReady(l.leases)
	}
	record, raw, err := recordOf(lease)
	if err != nil {
		return nil, nil, err
	}
	l.decided = lease
	return record, raw, nil
}

// Create answers that the lease is missing and what to do, or creates it if Options.CreateWith says so. It never returns
// nil: a created lease cannot be acquired before the controller has set its floor, and to the elector nil would mean that
// it leads.
func (l *Lock) Create(ctx context.Context, _ resourcelock.LeaderElectionRecord) error {
	if l.options.CreateWith == nil {
		return possession.Missing(l.leases)
	}
	if err := l.leases.Create(ctx, l.options.CreateWith); err != nil {
		return err
	}
	return possession.NotReady(l.leases)
}

// see takes note of the lease as the server returned it, and ends the own term if the lease shows another. It needs mu.
func (l *Lock) see(lease *v1alpha1.FencedLease) {
	l.latest = lease
	switch {
	case l.own == nil:
	case l.own.term.UID != lease.UID:
		l.lose(nil, true, nil)
	case !possession.Shows(lease, l.own.term) && !l.own.releasing:
		l.lose(lease, false, nil)
	}
}

// lose ends the own term, if there is one, and notes in lost how. It needs mu.
func (l *Lock) lose(found *v1alpha1.FencedLease, deleted bool, cause error) {
	if l.own != nil {
		l.end(possession.NewLostError(l.own.term, found, deleted, cause))
	}
}

// end notes in lost how the own term ended. It needs mu.
func (l *Lock) end(lost *LostError) {
	if l.own.handed && !l.own.releasing {
		l.stopping = lost
	}
	l.own, l.lost, l.decided = nil, lost, nil
}
