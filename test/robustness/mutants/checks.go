// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

// The names of the checks. Each is a function of the test, which says what is wrong with the product that runs.
const (
	// Those that begin with Table are cells of the table of pauses.
	TableStatus     = "pause table, status"
	TableCredential = "pause table, credentials"
	TableDelete     = "pause table, deletes"
	TableSeal       = "pause table, seal"
	TableLateCreate = "pause table, late creates"

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
	// The checks of what a seal is for, most of them with a webhook that hears nothing of the next term.
	StaleSealedTerm  = "stale copy of a sealed term"
	LazyAfterSeal    = "stale copy of a lazy term after a sealed one"
	OutOfTheSelector = "object that was out of the guard when it was sealed"
	UnfinishedSeal   = "seal that is not finished"
	EarlyWrite       = "write before the seal"
	SealBeforeGuards = "seal before the guards are in force"
	StampLookalike   = "write that looks like a stamp"
	UnreadableLease  = "lease that cannot be read"
	OlderGuards      = "guards that a replica has not heard of"
)
