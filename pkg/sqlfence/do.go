// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fencedlease/fencedlease/pkg/token"
)

// Tx is the transaction of a change. It cannot be ended by the change. Other connections of the pool are not part of it.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// changeTx hides the methods that end a transaction.
type changeTx struct{ Tx }

// Change makes the changes of an operation in a transaction, and returns what is recorded as its result: at most 64 KiB, or
// nil. It should only write what was computed before: others wait for the transaction. It is called once at most by each Do, and
// must not call the fence.
type Change func(ctx context.Context, tx Tx) (result []byte, err error)

// Do applies an operation once: the change, and the record of the operation, in one transaction that only the newest
// generation can commit. If the operation is recorded already, by whichever generation, nothing is executed and the
// outcome is the record, with AlreadyApplied.
//
// The operation is an id of up to 128 letters, digits and the characters - _ . : that stands for this change and no other.
//
// If the answer to the commit is lost, Do looks the operation up. An error that is ErrUnknown means that this failed, too.
// After any other error nothing was applied.
func (f *Fence) Do(ctx context.Context, operation string, change Change) (Outcome, error) {
	if operation == "" || change == nil {
		return Outcome{}, errors.New("apply an operation: its id or its change is missing")
	}
	t, err := f.check(operation)
	if err != nil {
		return Outcome{}, err
	}
	giveBack, err := f.take(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer giveBack()
	tx, err := f.begin(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer func() { _ = tx.Rollback() }() // also if the change panics; ended already if all went well
	row, err := f.enter(ctx, tx, t)
	if err != nil {
		return Outcome{}, err
	}
	if row.recorded {
		// Committed by whoever recorded it. That this term has taken the row over is all that is left to commit; if that
		// fails, the next call does it.
		_ = tx.Commit()
		return Outcome{Record: row.finding(operation).Record, AlreadyApplied: true}, nil
	}
	applied, err := f.apply(ctx, tx, t, row, change)
	if err != nil {
		return Outcome{}, err
	}
	if err := tx.Commit(); err != nil {
		return f.settle(ctx, t, row, err)
	}
	return Outcome{Record: applied}, nil
}

// apply makes the change and records it.
func (f *Fence) apply(ctx context.Context, tx *sql.Tx, t token.Token, row controlRow, change Change) (Record, error) {
	result, err := change(ctx, changeTx{tx})
	if err != nil {
		return Record{}, fmt.Errorf("apply operation %s: %w", t.Operation, err)
	}
	if len(result) > maxResult {
		return Record{}, fmt.Errorf("apply operation %s: its result has %d bytes, at most %d are recorded", t.Operation, len(result), maxResult)
	}
	applied := Record{Operation: t.Operation, Generation: t.Generation, Term: t.Term, Result: result}
	next := row.position + 1
	err = tx.QueryRowContext(ctx, record, f.name, t.Generation, t.Term, t.Operation, next, result, row.transaction, next-f.retain).
		Scan(&applied.AppliedAt)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Record{}, &UnknownError{Operation: t.Operation, err: errors.New("the change has ended the transaction that it was given")}
	case err != nil:
		return Record{}, fmt.Errorf("record operation %s: %w", t.Operation, err)
	}
	// Both may have happened while the change took its time. What is not sent leaves nothing to be looked up.
	if err := ctx.Err(); err != nil {
		return Record{}, fmt.Errorf("apply operation %s: %w", t.Operation, err)
	}
	return applied, f.checkHeld(t)
}

// settle finds out what became of a transaction whose commit was not confirmed. It has had the lock on the control row, so
// that it has ended, either way, once the lock is free.
func (f *Fence) settle(ctx context.Context, t token.Token, before controlRow, lost error) (Outcome, error) {
	now, err := find(ctx, f.db, f.name, f.pause, t.Operation)
	switch {
	case err != nil:
		return Outcome{}, &UnknownError{Operation: t.Operation, err: errors.Join(lost, err)}
	case now.recorded:
		return Outcome{Record: now.finding(t.Operation).Record, AlreadyApplied: true}, nil
	case now.forgotten > before.position:
		return Outcome{}, &UnknownError{Operation: t.Operation, err: fmt.Errorf("its record, if there was one, is forgotten: %w", lost)}
	default:
		return Outcome{}, fmt.Errorf("commit operation %s, which was not applied: %w", t.Operation, lost)
	}
}
