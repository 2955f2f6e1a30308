// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

// The names of the checks. Each is a function of the test, which says what is wrong with the product that runs.
const (
	// TableStatus, TableCredential and TableDelete are cells of the table of pauses.
	TableStatus     = "pause table, status"
	TableCredential = "pause table, credentials"
	TableDelete     = "pause table, deletes"

	TokenBelowMark  = "token below the mark"
	StaleCache      = "stale copy of the lease"
	OtherTerm       = "token of another term"
	Inherited       = "inherited annotation"
	ReleasedLease   = "token of a released lease"
	FutureToken     = "token of the future"
	LeaseAnew       = "lease created anew"
	SystemUser      = "spec written by a system user"
	JoinedRead      = "read that began before"
	CurrentStatus   = "status under the current token"
	OverrideOfStale = "override of a stale token"
	PolicyAlone     = "marks without the webhook"
	LateRelease     = "late release"
	NotInForce      = "registration that is not in force"
	LastFinalizer   = "last finalizer"
	UnreadableLease = "lease that cannot be read"
)
