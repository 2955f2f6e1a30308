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

// Get reads the lease from the server and returns its record and the bytes that change with each renewal; see the
// package comment for what counts. A missing lease is apierrors.IsNotFound, a lease without a status is ErrNotReady.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	lease, err := l.leases.get(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.decided = nil
		if apierrors.IsNotFound(err) {
			l.end(nil, true, err)
		}
		return nil, nil, err
	}
	l.see(lease)
	if !hasStatus(lease) {
		l.decided = nil
		return nil, nil, l.notReady()
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
		return fmt.Errorf("FencedLease %s: %w: its operator creates it with kubectl apply, after the CustomResourceDefinition fencedleases.%s; or set Options.CreateWith", l.leases, ErrMissing, v1alpha1.GroupName)
	}
	if err := l.leases.create(ctx, l.options.CreateWith); err != nil {
		return err
	}
	return l.notReady()
}

func (l *Lock) notReady() error {
	return fmt.Errorf("FencedLease %s: %w: the controller has not set status.generationFloor; if this stays, see that the FencedLease manager runs", l.leases, ErrNotReady)
}

// see takes note of the lease as the server returned it, and ends the own term if the lease shows another. It needs mu.
func (l *Lock) see(lease *v1alpha1.FencedLease) {
	l.latest = lease
	switch {
	case l.own == nil:
	case l.own.term.UID != lease.UID:
		l.end(nil, true, nil)
	case !shows(lease, l.own.term) && !l.own.releasing:
		l.end(lease, false, nil)
	}
}

// shows reports whether the lease is held in the term.
func shows(lease *v1alpha1.FencedLease, t Term) bool {
	status := &lease.Status
	return lease.UID == t.UID &&
		ptr.Deref(status.Generation, 0) == t.Generation &&
		ptr.Deref(status.Term, "") == t.ID &&
		ptr.Deref(status.HolderIdentity, "") == t.Holder
}

// end notes in lost how the own term ended, if there is one. The lease is what was found instead, or nil if it could not
// be read. It needs mu.
func (l *Lock) end(found *v1alpha1.FencedLease, deleted bool, cause error) {
	if l.own == nil {
		return
	}
	lost := &LostError{Term: l.own.term, Deleted: deleted, cause: cause}
	if found != nil {
		lost.HolderIdentity = ptr.Deref(found.Status.HolderIdentity, "")
		lost.Generation = ptr.Deref(found.Status.Generation, 0)
	}
	if l.own.handed && !l.own.releasing {
		l.stopping = lost
	}
	l.own, l.lost, l.decided = nil, lost, nil
}
