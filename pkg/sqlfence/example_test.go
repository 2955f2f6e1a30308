// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/fencedlease/fencedlease/pkg/leader"
	"github.com/fencedlease/fencedlease/pkg/sqlfence"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// settleInvoice is an operation that must happen once, whichever leader does it.
func settleInvoice(ctx context.Context, fence *sqlfence.Fence, invoice string, account, cents int64) error {
	outcome, err := fence.Do(ctx, "settle-"+invoice, func(ctx context.Context, tx sqlfence.Tx) ([]byte, error) {
		var left int64
		err := tx.QueryRowContext(ctx, "UPDATE accounts SET balance = balance - $2 WHERE id = $1 RETURNING balance", account, cents).Scan(&left)
		return fmt.Appendf(nil, "%d left", left), err
	})
	switch {
	case errors.Is(err, sqlfence.ErrUnknown):
		return fmt.Errorf("ask again with the same operation: %w", err)
	case leader.IsFenced(err):
		return fmt.Errorf("stop the work of this term: %w", err)
	case err != nil:
		return fmt.Errorf("nothing was applied: %w", err)
	}
	fmt.Fprintf(os.Stdout, "%s under generation %d: %s\n", outcome.Operation, outcome.Generation, outcome.Result)
	return nil
}

// The work of a term makes a fence of its own and takes the database over.
func Example() {
	var db *sql.DB // from sql.Open, in a real program
	work := func(ctx context.Context, term *leader.Term) error {
		fence, err := sqlfence.New(db, term, sqlfence.Options{})
		if err != nil {
			return err
		}
		if err := fence.Take(ctx); err != nil {
			return err
		}
		return settleInvoice(ctx, fence, "2026-11", 42, 1999)
	}
	_ = work // elector.Run(ctx, work)
	fmt.Println("settled once")
	// Output: settled once
}

// Not recorded is a state with a name, and no guess.
func ExampleFinding() {
	fmt.Println(sqlfence.Finding{Operation: "settle-2026-11"})
	// Output: operation settle-2026-11: not recorded; nothing was forgotten
}

func ExampleRefusedError() {
	var err error = &sqlfence.RefusedError{
		Type:   "StaleToken",
		Token:  token.Token{Generation: 33, Term: "a1a1a1a1", Operation: "settle-2026-11"},
		Stored: token.Token{Generation: 34, Term: "b2b2b2b2"},
	}
	fmt.Println(leader.IsFenced(err))
	var refused *sqlfence.RefusedError
	if errors.As(err, &refused) {
		fmt.Println("the database was written under", refused.Stored)
	}
	// Output:
	// true
	// the database was written under 34.b2b2b2b2
}
