//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"
)

// What an operation costs besides its change: against a transaction that makes the same change without a fence, by one caller
// and by several at once, who take turns. The figures are for docs/destinations.md; nothing is asserted of them.
func TestCosts(t *testing.T) {
	d := newDestination(t)
	fence := d.fence(termA())
	d.must(fence.Take(t.Context()))
	const operations = 400
	measure := func(callers int, operate func(ctx context.Context, operation string) error) time.Duration {
		t.Helper()
		begun := time.Now()
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for i := range operations / callers {
					if err := operate(t.Context(), fmt.Sprintf("op-%d-%d-%d", callers, caller, i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		return time.Since(begun) / operations
	}
	fenced := func(ctx context.Context, operation string) error {
		_, err := fence.Do(ctx, operation, write(termA(), operation))
		return err
	}
	replayed := func(ctx context.Context, operation string) error {
		_, err := fence.Do(ctx, operation, d.never)
		return err
	}
	plain := func(ctx context.Context, operation string) error {
		tx, err := d.db.BeginTx(ctx, &sql.TxOptions{})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // ended already if all went well
		if _, err := write(termA(), operation)(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	}
	for _, callers := range []int{1, 8} {
		t.Logf("%d callers: plain %s, fenced %s, replayed %s for each operation", callers,
			measure(callers, plain), measure(callers, fenced), measure(callers, replayed))
	}
}
