// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sqlfence fences the writes of a leader to a PostgreSQL database, by the same term that fences its writes to the
// API server.
//
// The database cannot ask the API server who leads. It does what the API server does with an object's mark: a control row
// holds the newest generation that has written, and the check of the generation, the change and the record of the operation
// are one transaction that holds the lock on this row:
//
//	fence, err := sqlfence.New(db, term, sqlfence.Options{})
//	// Once, when the term begins: from here on nothing older is committed.
//	err = fence.Take(ctx)
//	// As often as needed. The same operation is applied once, whoever asks for it, under whichever generation.
//	outcome, err := fence.Do(ctx, "invoice-2026-11", func(ctx context.Context, tx sqlfence.Tx) ([]byte, error) {
//		_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance - 100 WHERE id = $1", account)
//		return nil, err
//	})
//
// An older generation is refused with a *RefusedError, which leader.IsFenced understands. A newer one takes the row over.
// The same generation with another term is refused as forked. An operation that is recorded is not executed again: its
// record is returned.
//
// An error of Do means that nothing was applied, unless errors.Is(err, ErrUnknown): then the answer to the commit was lost
// and could not be looked up. Calling Do again with the same operation, or Lookup, settles it.
//
// Transactions are READ COMMITTED, whatever the database's default is. The row's lock orders all transactions of a lease, and
// each statement after it sees what was committed before. Because of this lock a transaction that pauses delays the next
// leader; the database ends the session of one that pauses for longer than Options.MaxPause.
//
// The package works with every driver of database/sql for PostgreSQL 13 and later whose placeholders are $1, $2. It needs the
// tables of Schema.
package sqlfence
