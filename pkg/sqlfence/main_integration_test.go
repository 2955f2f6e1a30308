//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/sqlfence"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/postgres"
)

// patience bounds waits; none of them takes nearly as long.
const patience = 20 * time.Second

// server is the PostgreSQL that the tests of this package share. Each test has a database of its own.
var server *postgres.Server

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(victimVariable); kubeconfig != "" {
		os.Exit(beVictim(kubeconfig))
	}
	if postgres.Skipped() {
		fmt.Fprintln(os.Stderr, "skipped: "+postgres.SkipVariable+" is set")
		os.Exit(0)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // no test runs yet
	defer cancel()
	var err error
	if server, err = postgres.Start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := server.Stop(); err != nil {
			fmt.Fprintf(os.Stderr, "stop PostgreSQL: %v\n", err)
		}
	}()
	return m.Run()
}

// term is a possession as an elector would give it. Err is what the holder's process believes, which after a pause may be
// wrong.
type term struct {
	generation int64
	id         string
	err        error
}

func (*term) Lease() types.NamespacedName {
	return types.NamespacedName{Namespace: "reports", Name: "report-writer"}
}
func (t *term) Token() token.Token     { return token.Token{Generation: t.generation, Term: t.id} }
func (t *term) Err() error             { return t.err }
func (*term) Guards() []v1alpha1.Guard { return nil }

var _ fenced.Possession = (*term)(nil)

// Two leaders in turn, and the second's term in another history.
func termA() *term    { return &term{generation: 33, id: "aaaaaaaa"} }
func termB() *term    { return &term{generation: 34, id: "bbbbbbbb"} }
func termFork() *term { return &term{generation: 34, id: "ffffffff"} }

const lease = "reports/report-writer"

// destination is a database with the tables of the fence, and one that changes are made in.
type destination struct {
	*testing.T
	name string
	db   *sql.DB
}

func newDestination(t *testing.T) *destination {
	t.Helper()
	name, err := server.CreateDatabase(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	d := &destination{T: t, name: name, db: postgres.OpenT(t, server.DSN(name))}
	d.must(sqlfence.Migrate(t.Context(), d.db))
	// The order of the changes that were committed is that of the numbers: each was drawn under the lock.
	d.exec(`CREATE TABLE history (number bigserial PRIMARY KEY, operation text NOT NULL, generation bigint NOT NULL)`)
	return d
}

func (d *destination) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *destination) exec(statement string, args ...any) {
	d.Helper()
	_, err := d.db.ExecContext(d.Context(), statement, args...)
	d.must(err)
}

// fence returns a fence of a term that writes through a pool, that of the destination unless another one is given.
func (d *destination) fence(t *term, options ...sqlfence.Options) *sqlfence.Fence {
	d.Helper()
	return d.fenceOn(d.db, t, options...)
}

func (d *destination) fenceOn(db *sql.DB, t *term, options ...sqlfence.Options) *sqlfence.Fence {
	d.Helper()
	f, err := sqlfence.New(db, t, append(options, sqlfence.Options{})[0])
	d.must(err)
	return f
}

// write makes the change that tests make: it notes the operation in the history, and its generation is the result.
func write(t *term, operation string) sqlfence.Change {
	return func(ctx context.Context, tx sqlfence.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, "INSERT INTO history (operation, generation) VALUES ($1, $2)", operation, t.generation)
		return fmt.Appendf(nil, "by %d", t.generation), err
	}
}

// never is a change that must not be made.
func (d *destination) never(context.Context, sqlfence.Tx) ([]byte, error) {
	d.Error("the change was executed")
	return nil, errors.New("executed")
}

// do applies an operation, and fails the test if it is refused.
func (d *destination) do(t *term, operation string) sqlfence.Outcome {
	d.Helper()
	outcome, err := d.fence(t).Do(d.Context(), operation, write(t, operation))
	d.must(err)
	return outcome
}

// entry is a change that was committed.
type entry struct {
	Operation  string
	Generation int64
}

func (d *destination) history() []entry {
	d.Helper()
	rows, err := d.db.QueryContext(d.Context(), "SELECT operation, generation FROM history ORDER BY number")
	d.must(err)
	defer func() { d.must(rows.Close()) }()
	var entries []entry
	for rows.Next() {
		var e entry
		d.must(rows.Scan(&e.Operation, &e.Generation))
		entries = append(entries, e)
	}
	d.must(rows.Err())
	return entries
}

func (d *destination) showsHistory(want ...entry) {
	d.Helper()
	equal(d.T, "history", want, d.history())
}

// refused checks that the fence refused for a cause, and returns the token that it says is stored.
func (d *destination) refused(err error, want fenced.CauseType) token.Token {
	d.Helper()
	var refused *sqlfence.RefusedError
	if !errors.As(err, &refused) || refused.Type != want || errors.Is(err, sqlfence.ErrUnknown) {
		d.Fatalf("want a refusal for %s, got %v", want, err)
	}
	refusal, ok := leader.Cause(fmt.Errorf("wrapped: %w", err))
	if !leader.IsFenced(err) || !ok || refusal.Type != want || refusal.Lease != termA().Lease() {
		d.Errorf("pkg/leader reads the refusal as %+v, %t", refusal, ok)
	}
	return refused.Stored
}

func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (d *destination) eventually(what string, condition func() bool) {
	d.Helper()
	err := wait.PollUntilContextTimeout(d.Context(), 5*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		d.Fatalf("wait until %s: %v", what, err)
	}
}

// waiting reports how many sessions of the database wait for a lock.
func (d *destination) waiting() int {
	d.Helper()
	var n int
	d.must(d.db.QueryRowContext(d.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'", d.name).Scan(&n))
	return n
}
