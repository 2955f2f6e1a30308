// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package possession

import (
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

var (
	// ErrNotReady means that the lease cannot be acquired yet, as the controller has not set status.generationFloor.
	ErrNotReady = errors.New("lease is not ready")

	// ErrMissing means that the FencedLease does not exist.
	ErrMissing = errors.New("lease is missing")

	// ErrSealPending means that a term may not write yet, as guarded objects are still to be stamped.
	ErrSealPending = errors.New("term is not sealed yet")

	// ErrNotHeld means that there is no term to release.
	ErrNotHeld = errors.New("lock holds no term")
)

// NotReady explains ErrNotReady for a lease.
func NotReady(lease fmt.Stringer) error {
	return fmt.Errorf("FencedLease %s: %w: the controller has not set status.generationFloor; if this stays, see that the FencedLease manager runs", lease, ErrNotReady)
}

// Missing explains ErrMissing for a lease, and says what to do.
func Missing(lease fmt.Stringer) error {
	return fmt.Errorf("FencedLease %s: %w: its operator creates it with kubectl apply, after the CustomResourceDefinition fencedleases.%s; or set Options.CreateWith", lease, ErrMissing, v1alpha1.GroupName)
}

// LostError means that a term has ended without a release by its holder. It is a conflict to apierrors.IsConflict.
type LostError struct {
	// Term is the term that has ended.
	Term Term
	// Expired says that the API server confirmed no renewal in time, so that the holder itself gave the term up. The
	// lease may still show it.
	Expired bool
	// Deleted says that the FencedLease of the term is gone, also if one of the same name was created since.
	Deleted bool
	// HolderIdentity and Generation are those that the lease showed when the loss was found. An empty holder means that
	// nobody holds it. Both are zero if the lease could not be read.
	HolderIdentity string
	Generation     int64

	cause error
}

// NewLostError says how a term ended. Found is the lease as it is now, or nil if it is not known; cause is the API
// server's answer that showed the loss, or nil.
func NewLostError(t Term, found *v1alpha1.FencedLease, deleted bool, cause error) *LostError {
	lost := &LostError{Term: t, Deleted: deleted, cause: cause}
	if found != nil {
		lost.HolderIdentity = ptr.Deref(found.Status.HolderIdentity, "")
		lost.Generation = ptr.Deref(found.Status.Generation, 0)
	}
	return lost
}

// NewExpiredError says that a term ended as no renewal was confirmed in time. Cause is how the last renewal failed, or nil.
func NewExpiredError(t Term, cause error) *LostError {
	return &LostError{Term: t, Expired: true, cause: cause}
}

// Error says which term has ended and who holds the lease instead.
func (e *LostError) Error() string {
	now := "nobody holds the lease now"
	switch {
	case e.Expired:
		now = "the API server confirmed no renewal before the renew deadline"
	case e.Deleted:
		now = "the lease was deleted"
	case e.HolderIdentity != "":
		now = fmt.Sprintf("%q holds the lease under generation %d", e.HolderIdentity, e.Generation)
	case e.Generation == 0:
		now = "the lease could not be read to see who holds it"
	}
	return fmt.Sprintf("term %s of %q on FencedLease %s/%s has ended: %s; stop the work of the term and acquire anew",
		e.Term.Token(), e.Term.Holder, e.Term.Namespace, e.Term.Name, now)
}

// Unwrap returns the API server's answer that showed the loss, or nil.
func (e *LostError) Unwrap() error { return e.cause }

// Status makes the error a conflict to the helpers of k8s.io/apimachinery/pkg/api/errors.
func (e *LostError) Status() metav1.Status {
	return conflictStatus(e.Term.Name, e.Error())
}

// ConflictError is a conflict that ends no term.
type ConflictError struct {
	lease   string
	message string
	cause   error
}

// NewConflictError returns a conflict on the lease called name, with a message of its own and the API server's answer, or
// nil.
func NewConflictError(name, message string, cause error) *ConflictError {
	return &ConflictError{lease: name, message: message, cause: cause}
}

// Error is the message.
func (e *ConflictError) Error() string { return e.message }

// Unwrap returns the API server's answer, or nil.
func (e *ConflictError) Unwrap() error { return e.cause }

// Status makes the error a conflict to the helpers of k8s.io/apimachinery/pkg/api/errors.
func (e *ConflictError) Status() metav1.Status { return conflictStatus(e.lease, e.message) }

func conflictStatus(lease, message string) metav1.Status {
	return metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusConflict,
		Reason:  metav1.StatusReasonConflict,
		Message: message,
		Details: &metav1.StatusDetails{Name: lease, Group: v1alpha1.GroupName, Kind: v1alpha1.Resource.Resource},
	}
}
