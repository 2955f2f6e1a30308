// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package possession

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// Ended finds out whether an answer to a renewal or release means that the term has ended. The rules of the FencedLease
// refuse a write of a term that has ended with 422, and a lease that is gone is 404: the lease is read then, live from the
// server, to say who holds it. After any other answer the term may still be current, and lost is nil. Found is the lease
// that was read, or nil.
func (c Client) Ended(ctx context.Context, t Term, answer error) (lost *LostError, found *v1alpha1.FencedLease) {
	if !apierrors.IsInvalid(answer) && !apierrors.IsConflict(answer) && !apierrors.IsNotFound(answer) {
		return nil, nil
	}
	found, err := c.Get(ctx)
	if err != nil {
		return NewLostError(t, nil, apierrors.IsNotFound(answer) || apierrors.IsNotFound(err), answer), nil
	}
	if Shows(found, t) {
		return nil, found
	}
	return NewLostError(t, found, apierrors.IsNotFound(answer) || found.UID != t.UID, answer), found
}
