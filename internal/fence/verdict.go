// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"github.com/fencedlease/fencedlease/pkg/operation"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// Outcome is what is to be done with a write.
type Outcome string

const (
	// Allow lets the write pass.
	Allow Outcome = "Allow"
	// Deny refuses the write, for good: repeating it does not help.
	Deny Outcome = "Deny"
	// NeedsRead means that a cached lease is not enough: decide again with a linearizable one.
	NeedsRead Outcome = "NeedsRead"
	// Unavailable means that no correct answer is possible now: a 500-class answer, never an admission.
	Unavailable Outcome = "Unavailable"
)

// Reason is why a verdict is as it is: a closed, stable set. Those of denials are the types of status causes.
type Reason string

// Reasons of Allow.
const (
	// CurrentToken: the token is of the current, held term.
	CurrentToken Reason = "CurrentToken"
	// SealedTerm: the token and the object's mark are of the same sealed term, which a cached lease shows: no read is
	// needed, as the next term begins by moving that mark.
	SealedTerm Reason = "SealedTerm"
	// DeleteIntent: the object's mark asks for its deletion under the current generation.
	DeleteIntent Reason = "DeleteIntent"
	// SystemWriter: a controller of the control plane made a harmless change.
	SystemWriter Reason = "SystemWriter"
	// NotSubject: the writer need not present a token.
	NotSubject Reason = "NotSubject"
	// Overridden: the writer may pass without a token and said why.
	Overridden Reason = "Overridden"
	// NotGuarded: the lease is gone or does not guard the object any more.
	NotGuarded Reason = "NotGuarded"
)

// Reasons of Deny.
const (
	// StaleToken: the token is older than the lease's generation or than the object's mark.
	StaleToken Reason = "StaleToken"
	// MissingToken: the write presents no token.
	MissingToken Reason = "MissingToken"
	// Released: the token is of the last term, which its holder has released.
	Released Reason = "Released"
	// FutureToken: the token is above the lease's generation.
	FutureToken Reason = "FutureToken"
	// ForkedTerm: the token has the lease's generation and another term: it stems from another history.
	ForkedTerm Reason = "ForkedTerm"
	// MalformedToken: what the write presents is not one well-formed token.
	MalformedToken Reason = "MalformedToken"
	// MarkTampered: the write removes the mark.
	MarkTampered Reason = "MarkTampered"
	// FinalDelete: the write empties the finalizers of a terminating object without the current token.
	FinalDelete Reason = "FinalDelete"
	// AlreadyApplied: the token's operation is one that the object records as applied to it.
	AlreadyApplied Reason = "AlreadyApplied"
)

// Reasons of Unavailable. They are the types of status causes, too.
const (
	// SealPending: the token is of the current term, which must be sealed before its first write and is not yet. Repeating
	// the write helps as soon as it is.
	SealPending Reason = "SealPending"
	// NotStamped: the request's token was not copied into the annotation, so accepting it would not move the mark.
	NotStamped Reason = "NotStamped"
	// UnsupportedOperation: the operation is not one that a guard can judge.
	UnsupportedOperation Reason = "UnsupportedOperation"
)

// NotFresh is the reason of NeedsRead.
const NotFresh Reason = "NotFresh"

// AllowReasons returns the closed set of reasons of Allow.
func AllowReasons() []Reason {
	return []Reason{CurrentToken, SealedTerm, DeleteIntent, SystemWriter, NotSubject, Overridden, NotGuarded}
}

// DenyReasons returns the closed set of reasons of Deny.
func DenyReasons() []Reason {
	return []Reason{
		StaleToken, MissingToken, Released, FutureToken, ForkedTerm, MalformedToken, MarkTampered, FinalDelete, AlreadyApplied,
	}
}

// UnavailableReasons returns the closed set of reasons of Unavailable.
func UnavailableReasons() []Reason {
	return []Reason{SealPending, NotStamped, UnsupportedOperation}
}

// Carrier is how a token reached the decision.
type Carrier string

// The carriers.
const (
	// CarrierNone: no token was presented.
	CarrierNone Carrier = ""
	// CarrierAnnotation: the write changes the token annotation.
	CarrierAnnotation Carrier = "annotation"
	// CarrierRequest: the request carries the token in userInfo.extra.
	CarrierRequest Carrier = "request"
	// CarrierCredential: the request is made with a credential that the lease lists for a term.
	CarrierCredential Carrier = "credential"
)

// Verdict is the answer for one write and one lease.
type Verdict struct {
	Outcome Outcome
	Reason  Reason
	// Message explains a denial, or why no answer is possible: lease, holder, token presented, token needed, next step.
	Message string
	// Lease is the lease the verdict is about, as it was seen.
	Lease Lease
	// Presented is the token that the write presents, the zero token if none or malformed, and if it is that of a
	// credential whose term has ended: the lease does not tell its generation.
	Presented token.Token
	// Recorded is the record of the operation that the write repeats: of the operation presented with AlreadyApplied, and
	// of the one that the inherited mark names with MissingToken, as a write that is sent once more changes no annotation.
	Recorded operation.Record
	// Carrier is how Presented arrived.
	Carrier Carrier
	// Ahead is a generation above the lease's that the write or the object showed, or 0: evidence that the lease went
	// back. With a cached lease it may as well mean that the cache is behind: who acts on it reads the lease first.
	Ahead int64
	// Audited says that the lease is in Audit: a Deny is to be admitted, counted, warned of and noted in the audit log.
	Audited bool
}

// Admits reports whether the write may pass as far as this verdict is concerned.
func (v Verdict) Admits() bool {
	return v.Outcome == Allow || v.Outcome == Deny && v.Audited
}
