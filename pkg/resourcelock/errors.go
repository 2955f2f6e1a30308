// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock

import (
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

var (
	// ErrNotReady means that the lease cannot be acquired yet, as the controller has not set status.generationFloor.
	// The elector tries again.
	ErrNotReady = errors.New("lease is not ready")

	// ErrMissing means that the FencedLease does not exist. The elector tries again.
	ErrMissing = errors.New("lease is missing")

	// ErrSealPending means that the lock has a term that may not write yet, as guarded objects are still to be stamped.
	// The elector tries again and keeps the term by that.
	ErrSealPending = errors.New("term is not sealed yet")

	// ErrNotHeld means that there is no term to release.
	ErrNotHeld = errors.New("lock holds no term")
)

// LostError means that a term has ended without a release by this lock. It is a conflict to apierrors.IsConflict.
type LostError struct {
	// Term is the term that has ended.
	Term Term
	// Deleted says that the FencedLease of the term is gone, also if one of the same name was created since.
	Deleted bool
	// HolderIdentity and Generation are those that the lease showed when the loss was found. An empty holder means that
	// nobody holds it. Both are zero if the lease could not be read.
	HolderIdentity string
	Generation     int64

	cause error
}

// Error says which term has ended and who holds the lease instead.
func (e *LostError) Error() string {
	now := "nobody holds the lease now"
	switch {
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

// conflictError is a conflict that ends no term.
type conflictError struct {
	lease   string
	message string
	cause   error
}

func (e *conflictError) Error() string         { return e.message }
func (e *conflictError) Unwrap() error         { return e.cause }
func (e *conflictError) Status() metav1.Status { return conflictStatus(e.lease, e.message) }

func conflictStatus(lease, message string) metav1.Status {
	return metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusConflict,
		Reason:  metav1.StatusReasonConflict,
		Message: message,
		Details: &metav1.StatusDetails{Name: lease, Group: v1alpha1.GroupName, Kind: v1alpha1.Resource.Resource},
	}
}
