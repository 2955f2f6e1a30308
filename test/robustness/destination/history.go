// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"time"

	"github.com/fencedlease/fencedlease/pkg/token"
)

// Verb is what a call asks of the fence.
type Verb string

// All of them.
const (
	Do     Verb = "Do"
	Lookup Verb = "Lookup"
	Find   Verb = "Find"
	Take   Verb = "Take"
)

// Outcome is what a call was told.
type Outcome string

// All of them.
const (
	// Applied: this call has applied the operation.
	Applied Outcome = "applied"
	// Recorded: the operation is recorded. By a Do it may be the call's own, whose answer was lost and looked up.
	Recorded Outcome = "recorded"
	// NotRecorded: the operation is not recorded, with the horizon.
	NotRecorded Outcome = "not recorded"
	// Taken: the control row shows the term, or a newer one.
	Taken Outcome = "taken"
	// Refused: nothing was applied, as the term is not the newest.
	Refused Outcome = "refused"
	// Failed: nothing was applied.
	Failed Outcome = "failed"
	// Unknown: the call does not know whether the operation was applied.
	Unknown Outcome = "unknown"
)

// Call is one call of the fence. Times are readings of the monotonic clock.
type Call struct {
	ID     int64
	Writer string
	// Row is the name of the control row.
	Row       string
	Verb      Verb
	Operation string
	// Token is what it presents; zero for Find.
	Token          token.Token
	Invoke, Return int64
	// First and Last are the epochs of the database at its begin and its end.
	First, Last int
	// Fault is what was done to it, if it was: see the kinds.
	Fault string

	Outcome Outcome
	// Record is that of the answers Applied and Recorded.
	Record Record
	// HorizonGeneration and HorizonTime are those of the answer NotRecorded.
	HorizonGeneration int64
	HorizonTime       time.Time
	// Cause and Stored are those of a refusal.
	Cause  string
	Stored token.Token
	// Error is the text of an error, State the database's code if it has one.
	Error, State string
}

// Kinds of faults of a call.
const (
	// LostAnswer: the commit arrives, and its answer does not.
	LostAnswer = "answer to COMMIT lost"
	// LateCommit: the client is cut off while its commit is on its way, and the commit arrives afterwards.
	LateCommit = "COMMIT arrives after its client was cut off"
	// GivesUp: the client stops to wait while its commit is on its way, and cannot look it up.
	GivesUp = "client gives up while its COMMIT is on its way"
	// Pause: the transaction stops at one of its messages.
	Pause = "transaction paused"
	// Hurry: the client waits for a moment only.
	Hurry = "client does not wait"
)

// Kinds of faults of the whole.
const (
	Crash       = "PostgreSQL killed"
	Restore     = "database restored"
	RaisedRow   = "control row raised after the restore"
	IssuerUndo  = "lease restored"
	RaisedLease = "lease raised above the database"
)

// Record is a record of an operation. Call is the number of the call, which is its result.
type Record struct {
	Operation string
	Token     token.Token
	Call      int64
	AppliedAt time.Time
}

// Change is what a call has changed in the database.
type Change struct {
	Call      int64
	Operation string
	Token     token.Token
}

// Control is the control row after a commit.
type Control struct {
	Token    token.Token
	Position int64
}

// Commit is what one transaction has committed to one control row and what belongs to it.
type Commit struct {
	Row     string
	Changes []Change
	Records []Record
	// Positions are those of the records.
	Positions []int64
	Controls  []Control
	// Forgotten are the operations whose records it has removed.
	Forgotten []string
}

// Epoch is a life of the database, from its creation or from a restore to the next restore or the end, with everything
// that its log has committed, oldest first: also what came with the backup.
type Epoch struct {
	Commits []Commit
	// Base is how many commits came with the backup, which was made in the epoch Origin after the time Backup.
	Base   int
	Origin int
	Backup int64
}

// Run is a history.
type Run struct {
	// Retain is how many operations each control row remembers.
	Retain map[string]int
	Calls  []*Call
	Epochs []Epoch
	// Faults counts those of the whole that have taken effect, Handovers the terms that were handed out.
	Faults    map[string]int
	Handovers int
}
