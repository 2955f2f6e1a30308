// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence

import (
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// ErrUnknown is what every *UnknownError is to errors.Is.
var ErrUnknown = errors.New("outcome is not known")

// UnknownError means that the answer to a commit was lost and the operation could not be looked up, so that it may have been
// applied or not. Do with the same operation, or Lookup, settles it.
type UnknownError struct {
	// Operation is its id.
	Operation string

	err error
}

// Error says which operation it is, and what to do.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("operation %s may have been applied or not (%v): look it up, or ask for the same operation again", e.Operation, e.err)
}

// Unwrap returns why it is not known.
func (e *UnknownError) Unwrap() error { return e.err }

// Is makes the error an ErrUnknown.
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

// RefusedError means that the fence refused an operation, which was not applied. It is a refusal to leader.IsFenced and
// leader.Cause, as those by the API server are.
type RefusedError struct {
	// Type is why: fenced.StaleToken, fenced.ForkedTerm, fenced.FutureToken if no real history can have produced the
	// generation, or fenced.TermEnded if nothing was sent as the term had ended.
	Type fenced.CauseType
	// Lease names the FencedLease, Token is what was presented.
	Lease types.NamespacedName
	Token token.Token
	// Stored is the possession that the database holds. It is zero where that was not asked.
	Stored token.Token

	reason error
}

// Error says what was refused, why, and what to do.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("FencedLease %s: the database refuses token %s: ", e.Lease, e.Token)
	switch e.Type {
	case fenced.StaleToken:
		return text + fmt.Sprintf("it was written under the newer %s; drop the result, acquire the lease again and compute anew; "+
			"if the lease was restored, raise its spec.minGeneration to %d", e.Stored, e.Stored.Generation)
	case fenced.ForkedTerm:
		return text + fmt.Sprintf("it was written under %s, which is another term of the same generation: the lease was restored; acquire it again", e.Stored)
	case fenced.FutureToken:
		return text + fmt.Sprintf("generations above %d come from no real history", token.MaxPlausibleGeneration)
	case fenced.TermEnded:
		return fmt.Sprintf("FencedLease %s: operation not applied: term %s has ended (%v); drop the result, acquire the lease again and compute anew",
			e.Lease, e.Token.Possession(), e.reason)
	default:
		return text + string(e.Type)
	}
}

// Unwrap returns what the possession gave as the reason, or nil.
func (e *RefusedError) Unwrap() error { return e.reason }

// Is makes the error a fenced.ErrTermEnded if it is one.
func (e *RefusedError) Is(target error) bool {
	return e.Type == fenced.TermEnded && target == fenced.ErrTermEnded
}

// Status is that of a refusal by the API server.
func (e *RefusedError) Status() metav1.Status {
	return metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: v1alpha1.StatusReasonFenced, Message: e.Error(),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
			Type: metav1.CauseType(e.Type), Message: e.Error(), Field: "metadata.annotations[" + v1alpha1.TokenKey(e.Lease.Name) + "]",
		}}},
	}
}
