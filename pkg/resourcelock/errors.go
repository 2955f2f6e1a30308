// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock

import "github.com/fencedlease/fencedlease/internal/possession"

var (
	// ErrNotReady means that the lease cannot be acquired yet, as the controller has not set status.generationFloor.
	// The elector tries again.
	ErrNotReady = possession.ErrNotReady

	// ErrMissing means that the FencedLease does not exist. The elector tries again.
	ErrMissing = possession.ErrMissing

	// ErrSealPending means that the lock has a term that may not write yet, as guarded objects are still to be stamped.
	// The elector tries again and keeps the term by that.
	ErrSealPending = possession.ErrSealPending

	// ErrNotHeld means that there is no term to release.
	ErrNotHeld = possession.ErrNotHeld
)

// LostError means that a term has ended without a release by this lock. It is a conflict to apierrors.IsConflict. Its field
// Term is the term that has ended. Deleted says that the FencedLease of the term is gone, also if one of the same name was
// created since. HolderIdentity and Generation are those that the lease showed when the loss was found: an empty holder
// means that nobody holds it, and both are zero if the lease could not be read. The lock never sets Expired.
type LostError = possession.LostError
