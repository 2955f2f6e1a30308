// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fencedlease/fencedlease/internal/possession"
)

// Why an elector does not lead, see Options.OnWaiting. The elector tries again in all of these cases.
var (
	// ErrMissing means that the FencedLease does not exist.
	ErrMissing = possession.ErrMissing

	// ErrNotReady means that the lease cannot be acquired yet, as the controller has not set status.generationFloor.
	ErrNotReady = possession.ErrNotReady

	// ErrSealPending means that the elector has a term that may not write yet, as guarded objects are still to be stamped.
	ErrSealPending = possession.ErrSealPending

	// ErrForbidden means that the elector lacks a permission.
	ErrForbidden = errors.New("no permission")

	// ErrLeaseTooShort means that the lease's duration does not fit Options.RenewDeadline or Options.RetryPeriod.
	ErrLeaseTooShort = errors.New("lease duration is too short")

	// ErrUnavailable means that the API server cannot be reached or does not answer as it should.
	ErrUnavailable = errors.New("lease is unavailable")
)

var (
	// ErrReleased is the error of a Term that its own elector has given up.
	ErrReleased = errors.New("term was released")

	// ErrWorkRunning means that work has not returned: Run gave its term up after Options.ReleaseTimeout, or Run was
	// called while the work of an earlier call still runs.
	ErrWorkRunning = errors.New("work has not returned")

	// ErrWorkExited means that work ended its goroutine by runtime.Goexit.
	ErrWorkExited = errors.New("work ended its goroutine instead of returning")
)

// LostError means that a term has ended without a release by its elector. It is a conflict to apierrors.IsConflict. Its
// field Term is the Info of the term. Expired says that the API server confirmed no renewal before the renew deadline, so
// that the elector itself gave the term up. Deleted says that the FencedLease is gone, also if one of the same name was
// created since. HolderIdentity and Generation are those that the lease showed when the loss was found: an empty holder
// means that nobody holds it, and both are zero if the lease could not be read.
type LostError = possession.LostError

// HeldError means that another holder has the lease.
type HeldError struct {
	// HolderIdentity and Generation are those of the lease as last seen.
	HolderIdentity string
	Generation     int64

	lease string
	term  string
}

// Error says who holds the lease.
func (e *HeldError) Error() string {
	return fmt.Sprintf("FencedLease %s: %q holds the lease under generation %d", e.lease, e.HolderIdentity, e.Generation)
}

// PanicError is what Run panics with when the work has panicked.
type PanicError struct {
	// Value is what the work panicked with, Stack where.
	Value any
	Stack []byte
}

// Error shows the value and the stack of the work.
func (e *PanicError) Error() string { return fmt.Sprintf("work panicked: %v\n\n%s", e.Value, e.Stack) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// explain sorts the answer to a request on the lease into the reasons for which an elector waits.
func explain(lease fmt.Stringer, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", possession.Missing(lease), err)
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return fmt.Errorf("FencedLease %s: %w: an elector needs get and watch on fencedleases and patch on fencedleases/status: %w", lease, ErrForbidden, err)
	default:
		return fmt.Errorf("FencedLease %s: %w: %w", lease, ErrUnavailable, err)
	}
}
