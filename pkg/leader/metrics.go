// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import "time"

// Metrics is told what happens to an elector. Its methods may be called from several goroutines and must return
// quickly.
type Metrics interface {
	// Leading says whether the elector leads: from when the work may begin until the term ends.
	Leading(leads bool)
	// Acquired counts a term. Vacancy is how long the lease had been free, as far as the elector saw it: since the release,
	// or since the lease duration was over without a renewal.
	Acquired(vacancy time.Duration)
	// Renewed counts a confirmed renewal. Gap is the time between its sending and that of the last confirmed one: the
	// pauses that the leader really has.
	Renewed(gap time.Duration)
	// Lost counts the loss of a term.
	Lost(reason LossReason)
}

// LossReason is why a term was lost.
type LossReason string

const (
	// LossExpired means that no renewal was confirmed before the renew deadline.
	LossExpired LossReason = "Expired"
	// LossTaken means that the lease shows another term.
	LossTaken LossReason = "Taken"
	// LossReleased means that somebody else emptied the holder.
	LossReleased LossReason = "Released"
	// LossDeleted means that the FencedLease was deleted.
	LossDeleted LossReason = "Deleted"
)

// LossReasons returns all reasons.
func LossReasons() []LossReason {
	return []LossReason{LossExpired, LossTaken, LossReleased, LossDeleted}
}

func reasonOf(lost *LostError) LossReason {
	switch {
	case lost.Expired:
		return LossExpired
	case lost.Deleted:
		return LossDeleted
	case lost.HolderIdentity == "" && lost.Generation == lost.Term.Generation:
		return LossReleased
	default:
		return LossTaken
	}
}

type noMetrics struct{}

func (noMetrics) Leading(bool)           {}
func (noMetrics) Acquired(time.Duration) {}
func (noMetrics) Renewed(time.Duration)  {}
func (noMetrics) Lost(LossReason)        {}
