// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// Possession is one term of a FencedLease as those see it who write under it. Its methods may be called by several
// goroutines.
type Possession interface {
	// Lease names the FencedLease.
	Lease() types.NamespacedName
	// Token returns the token of the term, with generation and term and without an operation. It never changes.
	Token() token.Token
	// Err returns nil while writes may leave, and else why they may not. It looks at the clock itself, so that a process
	// that was paused beyond its renew deadline gets an error before any timer has fired.
	Err() error
	// Guards returns the guards of the lease as last seen. They tell which objects are stamped. A guard that was not seen
	// yet costs a refusal and opens nothing.
	Guards() []v1alpha1.Guard
}

// Pending is a possession that may not have begun yet. Until it has, writes go out as they are: the API server refuses
// those that need a token.
type Pending interface {
	Possession
	// Pending reports that the term has not begun. Once it is false it stays false.
	Pending() bool
}

// pending reports whether a possession has yet to begin.
func pending(p Possession) bool {
	candidate, ok := p.(Pending)
	return ok && candidate.Pending()
}

// ErrTermEnded is what every *EndedError is to errors.Is.
var ErrTermEnded = errors.New("term has ended")

// EndedError means that a write was refused before it left the process, as the term it belongs to has ended. It is a
// refusal of the fence to IsFenced, and forbidden to the helpers of k8s.io/apimachinery/pkg/api/errors.
type EndedError struct {
	// Lease names the FencedLease, Token is that of the ended term.
	Lease types.NamespacedName
	Token token.Token

	reason error
}

// Error says which term has ended and why.
func (e *EndedError) Error() string {
	return fmt.Sprintf("write not sent: term %s of FencedLease %s has ended (%v); drop the result, acquire the lease again and compute anew",
		e.Token, e.Lease, e.reason)
}

// Unwrap returns what the possession gave as the reason.
func (e *EndedError) Unwrap() error { return e.reason }

// Is makes the error an ErrTermEnded.
func (e *EndedError) Is(target error) bool { return target == ErrTermEnded }

// Status is that of a refusal by the webhook, so that nothing repeats the write as it would after a conflict.
func (e *EndedError) Status() metav1.Status {
	return metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: v1alpha1.StatusReasonFenced, Message: e.Error(),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
			Type: metav1.CauseType(TermEnded), Message: e.Error(), Field: markField(e.Lease.Name),
		}}},
	}
}

// checkHeld returns an *EndedError once the possession has ended.
func checkHeld(p Possession) error {
	if err := p.Err(); err != nil {
		return &EndedError{Lease: p.Lease(), Token: p.Token(), reason: err}
	}
	return nil
}

// markField is the field of the causes of refusals.
func markField(leaseName string) string {
	return "metadata.annotations[" + v1alpha1.TokenKey(leaseName) + "]"
}
