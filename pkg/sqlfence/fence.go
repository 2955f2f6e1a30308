// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
)

const (
	// defaultMaxPause is the default of Options.MaxPause: the default duration of a lease.
	defaultMaxPause = 15 * time.Second
	// defaultPause is the same as the database takes it, in milliseconds.
	defaultPause = "15000"
	// defaultRetain is the default of Options.Retain.
	defaultRetain = 10_000
	// maxResult is the largest number of bytes of a result, as Schema has it.
	maxResult = 64 << 10
)

// Possession is one term of a FencedLease. A *leader.Term is one, and so is every fenced.Possession. Its methods may be
// called by several goroutines.
type Possession interface {
	// Lease names the FencedLease.
	Lease() types.NamespacedName
	// Token returns the token of the term, with generation and term and without an operation.
	Token() token.Token
	// Err returns nil while the term may write, and else why it may not.
	Err() error
}

var _ Possession = fenced.Possession(nil)

// Options are the choices of a Fence. The zero value is fit for use.
type Options struct {
	// Name is the key of the control row. All who write under the lease must use the same. It must differ between leases that
	// write to the same database, also those of different clusters. Empty means <namespace>/<name> of the FencedLease.
	Name string

	// MaxPause bounds how long a transaction may wait for its client between two statements. Then the database ends its
	// session, so that a leader that has stopped amid a transaction does not keep its successor waiting. No promise rests
	// on it. It is rounded up to milliseconds. Zero means 15 seconds, less than zero means no bound.
	MaxPause time.Duration

	// Retain is how many operations of the lease are remembered; older ones are forgotten as new ones are recorded. Zero means
	// 10000.
	Retain int64
}

// Fence writes to a database under one term. It may be used by several goroutines, which take turns.
type Fence struct {
	db         *sql.DB
	possession Possession
	name       string
	retain     int64
	// pause is MaxPause as the database takes it.
	pause string
	// turn has room for the one call that is under way. The control row's lock lets one through at a time as well, but those
	// who wait for that hold a connection each.
	turn chan struct{}
}

// New returns a fence for a term. It is made where the work of the term begins, and not kept for another one: a fence whose
// term has ended refuses to write. The database is a pool; the fence uses one of its connections at a time for each call.
func New(db *sql.DB, possession Possession, options Options) (*Fence, error) {
	if db == nil || possession == nil {
		return nil, errors.New("make a fence: the database or the possession is missing")
	}
	if options.Retain < 0 {
		return nil, fmt.Errorf("make a fence: Options.Retain is %d, it must be zero or more", options.Retain)
	}
	if options.Name == "" {
		options.Name = possession.Lease().String()
	}
	if options.Retain == 0 {
		options.Retain = defaultRetain
	}
	switch {
	case options.MaxPause == 0:
		options.MaxPause = defaultMaxPause
	case options.MaxPause < 0:
		options.MaxPause = 0 // no bound, to the database
	}
	pause := (options.MaxPause + time.Millisecond - 1).Milliseconds()
	return &Fence{
		db: db, possession: possession, name: options.Name, retain: options.Retain,
		pause: strconv.FormatInt(pause, 10), turn: make(chan struct{}, 1),
	}, nil
}

// Take makes the term's generation the newest that writes: from its return on no transaction of an older generation is
// committed, not even one that is under way. Without it that begins with the first Do or Lookup of the term. Call it when the
// work of the term begins, and before reading what the work goes on from.
func (f *Fence) Take(ctx context.Context) error {
	t, err := f.check("")
	if err != nil {
		return err
	}
	_, err = f.enterAndCommit(ctx, t)
	return err
}

// Lookup tells what became of an operation. It takes the row over as Take does, and waits for transactions that are under
// way, so that its answer is final: an operation that is not recorded, and not forgotten, was not applied, and will be
// by nobody of an older term. Whether this term applies it is up to its process.
func (f *Fence) Lookup(ctx context.Context, operation string) (Finding, error) {
	t, err := f.check(operation)
	if err != nil {
		return Finding{}, err
	}
	return f.enterAndCommit(ctx, t)
}

// check returns the token with an operation, which may be empty, or says why the term may not write.
func (f *Fence) check(operation string) (token.Token, error) {
	t := f.possession.Token()
	if t.Generation < 1 || t.Term == "" {
		return token.Token{}, fmt.Errorf("FencedLease %s: the possession has no token with a term: %q", f.possession.Lease(), t)
	}
	t, err := t.WithOperation(operation)
	if err != nil {
		return token.Token{}, err
	}
	if !t.Plausible() {
		return token.Token{}, f.refusal(fenced.FutureToken, t, token.Token{}, nil)
	}
	return t, f.checkHeld(t)
}

// checkHeld refuses once the term has ended as far as this process knows. It spares the database a request; that the
// database refuses does not depend on it.
func (f *Fence) checkHeld(t token.Token) error {
	if err := f.possession.Err(); err != nil {
		return f.refusal(fenced.TermEnded, t, token.Token{}, err)
	}
	return nil
}

func (f *Fence) refusal(cause fenced.CauseType, presented, stored token.Token, reason error) error {
	return &RefusedError{Type: cause, Lease: f.possession.Lease(), Token: presented, Stored: stored, reason: reason}
}

// take waits for the fence's turn. It is given back by what it returns.
func (f *Fence) take(ctx context.Context) (giveBack func(), err error) {
	select {
	case f.turn <- struct{}{}:
		return func() { <-f.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the other calls: %w", context.Cause(ctx))
	}
}

// begin begins a transaction. Its isolation is named, so that no default of the database or the role changes it.
func (f *Fence) begin(ctx context.Context) (*sql.Tx, error) {
	tx, err := f.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, fmt.Errorf("begin the transaction: %w", err)
	}
	return tx, nil
}

// enter takes the control row over if the token is newer, keeps it locked until the transaction ends, and refuses the token
// unless the row holds its possession now.
func (f *Fence) enter(ctx context.Context, tx *sql.Tx, t token.Token) (controlRow, error) {
	if _, err := tx.ExecContext(ctx, takeOver, f.name, t.Generation, t.Term, f.pause); err != nil {
		return controlRow{}, fmt.Errorf("take over the control row of %s: %w", f.name, err)
	}
	row, err := scanControl(tx.QueryRowContext(ctx, inspect, f.name, t.Operation))
	if err != nil {
		return controlRow{}, fmt.Errorf("read the control row of %s: %w", f.name, err)
	}
	switch {
	case row.stored == t.Possession():
		return row, nil
	case row.stored.Generation > t.Generation:
		return controlRow{}, f.refusal(fenced.StaleToken, t, row.stored, nil)
	default:
		return controlRow{}, f.refusal(fenced.ForkedTerm, t, row.stored, nil)
	}
}

// enterAndCommit enters and changes nothing else.
func (f *Fence) enterAndCommit(ctx context.Context, t token.Token) (Finding, error) {
	giveBack, err := f.take(ctx)
	if err != nil {
		return Finding{}, err
	}
	defer giveBack()
	tx, err := f.begin(ctx)
	if err != nil {
		return Finding{}, err
	}
	defer func() { _ = tx.Rollback() }() // ended already if all went well
	row, err := f.enter(ctx, tx, t)
	if err != nil {
		return Finding{}, err
	}
	if err := tx.Commit(); err != nil {
		return Finding{}, fmt.Errorf("commit the control row of %s: %w", f.name, err)
	}
	return row.finding(t.Operation), nil
}
