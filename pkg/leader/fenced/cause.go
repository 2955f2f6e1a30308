// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"errors"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/operation"
)

// CauseType is why a write was refused.
type CauseType string

// The causes of refusals. The first nine are the webhook's; servers that are newer than this package may know more.
const (
	// StaleToken: the token is older than the lease's generation or than the object's mark.
	StaleToken CauseType = "StaleToken"
	// MissingToken: the write presents no token.
	MissingToken CauseType = "MissingToken"
	// Released: the token is of the last term, which its holder has released.
	Released CauseType = "Released"
	// FutureToken: the token is above the lease's generation.
	FutureToken CauseType = "FutureToken"
	// ForkedTerm: the token has the lease's generation and another term.
	ForkedTerm CauseType = "ForkedTerm"
	// MalformedToken: what the write presents is not one well-formed token.
	MalformedToken CauseType = "MalformedToken"
	// MarkTampered: the write removes the object's mark.
	MarkTampered CauseType = "MarkTampered"
	// FinalDelete: the write empties the finalizers of a terminating object without the current token.
	FinalDelete CauseType = "FinalDelete"
	// AlreadyApplied: the token's operation is one that the object records as applied to it. It is no refusal to IsFenced:
	// the term is in order.
	AlreadyApplied CauseType = "AlreadyApplied"
	// RecordTampered: the write changes the object's record of operations. Only the policy of marks says so.
	RecordTampered CauseType = "RecordTampered"
	// TermEnded: the write was not sent, as its term had ended. See EndedError.
	TermEnded CauseType = "TermEnded"
)

// Refusal is a refusal by the fence.
type Refusal struct {
	// Type is why the write was refused, or empty if the server did not say.
	Type CauseType
	// Lease is the FencedLease whose fence refused the write. The namespace is empty if the policy of marks refused it,
	// which does not know the lease; the name is empty, too, if the server did not say it.
	Lease types.NamespacedName
	// Message explains the refusal to a person.
	Message string
	// Record is that of the operation, if it was applied to the object before and the server says so. With MissingToken, the
	// object's mark, which the write leaves as it is, is that of the operation.
	Record operation.Record
}

// IsFenced reports whether an error, or one that it wraps, is a refusal by the fence: by the webhook, by the policy of
// marks, or by this package as the term had ended. The write was not applied; an earlier attempt of it may have been.
//
// That an operation was applied before (AlreadyApplied) is none: whoever steps down when fenced goes on leading.
func IsFenced(err error) bool {
	_, ok := firstCause(err, func(r Refusal) bool { return r.Type != AlreadyApplied })
	return ok
}

// AlreadyAppliedRecord returns the record of the operation if an error, or one that it wraps, says that it was applied to
// the object before, and otherwise false. The record is empty if the server did not send it.
func AlreadyAppliedRecord(err error) (operation.Record, bool) {
	refusal, ok := firstCause(err, func(r Refusal) bool { return r.Type == AlreadyApplied })
	return refusal.Record, ok
}

// Cause returns why the fence refused a write, and false if err is nil or something else. AlreadyApplied is a cause as the
// others are, unlike to IsFenced.
func Cause(err error) (Refusal, bool) {
	return firstCause(err, func(Refusal) bool { return true })
}

// firstCause returns the first refusal in an error that is wanted.
func firstCause(err error, wanted func(Refusal) bool) (Refusal, bool) {
	if err == nil {
		return Refusal{}, false
	}
	if ended, ok := err.(*EndedError); ok { //nolint:errorlint // one step of a walk
		refusal := Refusal{Type: TermEnded, Lease: ended.Lease, Message: ended.Error()}
		return refusal, wanted(refusal)
	}
	// Of this error only: the first status hides no other.
	if status, ok := err.(apierrors.APIStatus); ok {
		if refusal, ok := refusalOf(status.Status()); ok && wanted(refusal) {
			return refusal, true
		}
	}
	for _, wrapped := range unwrap(err) {
		if refusal, ok := firstCause(wrapped, wanted); ok {
			return refusal, true
		}
	}
	return Refusal{}, false
}

// unwrap returns what an error wraps directly.
func unwrap(err error) []error {
	switch e := err.(type) { //nolint:errorlint // one step of a walk
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	case interface{ Errors() []error }:
		return e.Errors()
	default:
		if wrapped := errors.Unwrap(err); wrapped != nil {
			return []error{wrapped}
		}
		return nil
	}
}

func refusalOf(status metav1.Status) (Refusal, bool) {
	switch status.Reason {
	case v1alpha1.StatusReasonFenced:
		return refusalOfWebhook(status), true
	case metav1.StatusReasonForbidden:
		return refusalOfPolicy(status.Message)
	default:
		return Refusal{}, false
	}
}

var leaseInMessage = regexp.MustCompile(`(?:^|: )FencedLease ([^/\s]+)/([^:\s]+): `)

func refusalOfWebhook(status metav1.Status) Refusal {
	refusal := Refusal{Message: status.Message}
	if status.Details != nil && len(status.Details.Causes) > 0 {
		cause := status.Details.Causes[0]
		refusal.Type, refusal.Message = CauseType(cause.Type), cause.Message
		name, _ := strings.CutPrefix(strings.TrimSuffix(cause.Field, "]"), strings.TrimSuffix(markField(""), "]"))
		refusal.Lease.Name = name
		refusal.Record = recordIn(status.Details.Causes[1:])
	}
	if m := leaseInMessage.FindStringSubmatch(refusal.Message); m != nil {
		refusal.Lease = types.NamespacedName{Namespace: m[1], Name: m[2]}
	}
	return refusal
}

// recordIn returns the record that causes name, or none.
func recordIn(causes []metav1.StatusCause) operation.Record {
	for _, cause := range causes {
		if cause.Type != v1alpha1.CauseOperationRecord {
			continue
		}
		if record, err := operation.ParseRecord(cause.Message); err == nil {
			return record
		}
	}
	return operation.Record{}
}
