// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/fencedlease/fencedlease/pkg/token"
)

// Record is what the database remembers of an operation.
type Record struct {
	// Operation is its id.
	Operation string
	// Generation and Term are those under which it was applied.
	Generation int64
	Term       string
	// AppliedAt is when, by the database's clock.
	AppliedAt time.Time
	// Result is what the change returned.
	Result []byte
}

// Outcome is an operation that is applied.
type Outcome struct {
	Record
	// AlreadyApplied says that the record was found and the change not executed: it is from an earlier call, or from this
	// one if the answer to its commit was lost.
	AlreadyApplied bool
}

// Horizon is how far back the database remembers operations: every operation that was applied under a newer generation, or
// later, is recorded. The zero value means that nothing was ever forgotten.
type Horizon struct {
	// Generation is the newest under which an operation was applied that is forgotten.
	Generation int64
	// AppliedAt is the latest time at which such an operation was applied, by the database's clock.
	AppliedAt time.Time
}

// Finding is what the database knows of an operation. Not recorded is a state of its own, and no guess: the operation was
// not applied, or it is beyond the horizon.
type Finding struct {
	// Operation is its id.
	Operation string
	// Recorded says that the operation was applied, and Record how. Record is zero otherwise.
	Recorded bool
	Record   Record
	// Horizon is how far back operations are remembered.
	Horizon Horizon
}

// String says what is known, to a person.
func (f Finding) String() string {
	switch {
	case f.Recorded:
		return fmt.Sprintf("operation %s: applied under %d.%s at %s",
			f.Operation, f.Record.Generation, f.Record.Term, f.Record.AppliedAt.UTC().Format(time.RFC3339Nano))
	case f.Horizon == Horizon{}:
		return fmt.Sprintf("operation %s: not recorded; nothing was forgotten", f.Operation)
	default:
		return fmt.Sprintf("operation %s: not recorded; horizon starts at %s, after generation %d",
			f.Operation, f.Horizon.AppliedAt.UTC().Format(time.RFC3339Nano), f.Horizon.Generation)
	}
}

// Control is the state of a lease in the database.
type Control struct {
	// Token is that of the newest generation that has written, TakenAt when it took over, by the database's clock. Both are
	// zero if none has.
	Token   token.Token
	TakenAt time.Time
	// Operations is how many operations were recorded, ever, and Horizon how far back they are remembered.
	Operations int64
	Horizon    Horizon
}

// Read returns the state of a lease in the database, by the name of its control row (see Options.Name). After a restore of
// the lease it tells the generation that spec.minGeneration must be raised to.
func Read(ctx context.Context, db *sql.DB, name string) (Control, error) {
	row, err := find(ctx, db, name, defaultPause, "")
	if err != nil {
		return Control{}, err
	}
	return Control{Token: row.stored, TakenAt: row.takenAt.Time, Operations: row.position, Horizon: row.horizon}, nil
}

// Find tells what became of an operation, to who holds no term: a person, or another program. It waits for transactions that
// are under way. Unlike Fence.Lookup it takes nothing over, so that the present leader, and any that has not been succeeded
// in the database, may still apply an operation that is not recorded. It needs the rights of a writer.
func Find(ctx context.Context, db *sql.DB, name, operation string) (Finding, error) {
	row, err := find(ctx, db, name, defaultPause, operation)
	if err != nil {
		return Finding{}, err
	}
	return row.finding(operation), nil
}

// find reads the control row and an operation once no transaction that writes the row is under way. The row is zero if there
// is none.
func find(ctx context.Context, db *sql.DB, name, pause, operation string) (controlRow, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return controlRow{}, fmt.Errorf("begin the transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing of it is to stay
	stands, err := tx.ExecContext(ctx, stand, name)
	if err != nil {
		return controlRow{}, fmt.Errorf("look for the control row of %s: %w", name, err)
	}
	if n, err := stands.RowsAffected(); err != nil || n > 0 {
		return controlRow{}, err
	}
	if _, err := tx.ExecContext(ctx, lock, name, pause); err != nil {
		return controlRow{}, fmt.Errorf("lock the control row of %s: %w", name, err)
	}
	row, err := scanControl(tx.QueryRowContext(ctx, inspect, name, operation))
	if err != nil {
		return controlRow{}, fmt.Errorf("read the control row of %s: %w", name, err)
	}
	return row, nil
}
