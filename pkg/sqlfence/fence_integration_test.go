//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/sqlfence"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/postgres"
)

func TestOnlyTheNewestGenerationWrites(t *testing.T) {
	d := newDestination(t)
	d.do(termA(), "one")
	d.do(termB(), "two")

	t.Run("an older one is refused, says by whom it was fenced, and changes nothing", func(t *testing.T) {
		_, err := d.fence(termA()).Do(t.Context(), "three", d.never)
		equal(t, "stored token", termB().Token(), d.refused(err, fenced.StaleToken))
		d.refused(d.fence(termA()).Take(t.Context()), fenced.StaleToken)
		_, err = d.fence(termA()).Lookup(t.Context(), "one")
		d.refused(err, fenced.StaleToken)
	})
	t.Run("the same one with another term is refused as forked", func(t *testing.T) {
		_, err := d.fence(termFork()).Do(t.Context(), "three", d.never)
		equal(t, "stored token", termB().Token(), d.refused(err, fenced.ForkedTerm))
	})
	t.Run("one that no real history has is refused, and shuts nobody out", func(t *testing.T) {
		forged := &term{generation: token.MaxPlausibleGeneration + 1, id: "cccccccc"}
		_, err := d.fence(forged).Do(t.Context(), "three", d.never)
		d.refused(err, fenced.FutureToken)
		d.do(termB(), "three")
	})
	t.Run("a term that has ended sends nothing", func(t *testing.T) {
		ended := termB()
		ended.err = errors.New("lost")
		_, err := d.fence(ended).Do(t.Context(), "four", d.never)
		if d.refused(err, fenced.TermEnded); !errors.Is(err, fenced.ErrTermEnded) || !errors.Is(err, ended.err) {
			t.Errorf("the refusal hides why: %v", err)
		}
	})
	t.Run("a term that ends while the change is made does not commit it", func(t *testing.T) {
		ending := termB()
		_, err := d.fence(ending).Do(t.Context(), "four", func(ctx context.Context, tx sqlfence.Tx) ([]byte, error) {
			ending.err = errors.New("lost")
			return write(ending, "four")(ctx, tx)
		})
		d.refused(err, fenced.TermEnded)
	})
	t.Run("a possession without a term is none", func(t *testing.T) {
		for _, p := range []*term{{}, {generation: 40}} {
			if _, err := d.fence(p).Do(t.Context(), "four", d.never); err == nil {
				t.Errorf("%+v was let in", p)
			}
		}
	})
	d.showsHistory(entry{"one", 33}, entry{"two", 34}, entry{"three", 34})
}

func TestTakeClosesTheWindowBeforeTheFirstWrite(t *testing.T) {
	d := newDestination(t)
	d.do(termA(), "one")
	d.must(d.fence(termB()).Take(t.Context()))
	_, err := d.fence(termA()).Do(t.Context(), "two", d.never)
	d.refused(err, fenced.StaleToken)

	control, err := sqlfence.Read(t.Context(), d.db, lease)
	d.must(err)
	equal(t, "token in the database", termB().Token(), control.Token)
	equal(t, "operations", 1, control.Operations)
	if control.TakenAt.IsZero() {
		t.Error("the database does not say when it was taken over")
	}
	// It can be repeated, and leaves the time.
	d.must(d.fence(termB()).Take(t.Context()))
	again, err := sqlfence.Read(t.Context(), d.db, lease)
	d.must(err)
	equal(t, "state", control, again)
}

func TestARecordedOperationIsNotExecutedAgain(t *testing.T) {
	d := newDestination(t)
	first := d.do(termA(), "job")
	if first.AlreadyApplied || first.Generation != 33 || first.Term != "aaaaaaaa" || string(first.Result) != "by 33" || first.AppliedAt.IsZero() {
		t.Errorf("outcome of the first call: %+v", first)
	}
	for i := range 5 {
		d.do(termA(), fmt.Sprintf("later-%d", i))
	}
	want := sqlfence.Outcome{Record: first.Record, AlreadyApplied: true}
	for _, p := range []*term{termA(), termB()} {
		got, err := d.fence(p).Do(t.Context(), "job", d.never)
		d.must(err)
		equal(t, fmt.Sprintf("outcome under %d", p.generation), want, got)
	}
	t.Run("who asks under a newer generation has taken over", func(t *testing.T) {
		_, err := d.fence(termA()).Do(t.Context(), "job", d.never)
		d.refused(err, fenced.StaleToken)
	})
	t.Run("anybody may look it up", func(t *testing.T) {
		finding, err := sqlfence.Find(t.Context(), d.db, lease, "job")
		d.must(err)
		equal(t, "finding", sqlfence.Finding{Operation: "job", Recorded: true, Record: first.Record}, finding)
		finding, err = sqlfence.Find(t.Context(), d.db, lease, "other")
		d.must(err)
		equal(t, "finding", "operation other: not recorded; nothing was forgotten", finding.String())
		finding, err = sqlfence.Find(t.Context(), d.db, "no/lease", "job")
		d.must(err)
		equal(t, "finding", sqlfence.Finding{Operation: "job"}, finding)
	})
}

func TestAChangeThatFailsLeavesNothing(t *testing.T) {
	d := newDestination(t)
	failure := errors.New("no")
	for name, change := range map[string]sqlfence.Change{
		"it returns an error after it has written": func(ctx context.Context, tx sqlfence.Tx) ([]byte, error) {
			_, err := write(termA(), "job")(ctx, tx)
			return nil, errors.Join(err, failure)
		},
		"its result is too large": func(ctx context.Context, tx sqlfence.Tx) ([]byte, error) {
			_, err := write(termA(), "job")(ctx, tx)
			return bytes.Repeat([]byte("x"), 64<<10+1), err
		},
		"a statement of it fails": func(ctx context.Context, tx sqlfence.Tx) ([]byte, error) {
			_, err := write(termA(), "job")(ctx, tx)
			d.must(err)
			_, _ = tx.ExecContext(ctx, "SELECT no_such_column") // whose error it forgets
			return nil, nil
		},
		"it violates a constraint that is checked at the commit": func(ctx context.Context, tx sqlfence.Tx) ([]byte, error) {
			_, err := tx.ExecContext(ctx, "CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			d.must(err)
			_, err = tx.ExecContext(ctx, "INSERT INTO late VALUES (1), (1)")
			return nil, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.fence(termA()).Do(t.Context(), "job", change)
			if err == nil || errors.Is(err, sqlfence.ErrUnknown) {
				t.Errorf("want a plain error, got %v", err)
			}
			d.showsHistory()
			finding, err := d.fence(termA()).Lookup(t.Context(), "job")
			d.must(err)
			equal(t, "finding", sqlfence.Finding{Operation: "job"}, finding)
		})
	}
	t.Run("it panics", func(t *testing.T) {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_, _ = d.fence(termA()).Do(t.Context(), "job", func(ctx context.Context, tx sqlfence.Tx) ([]byte, error) {
				_, err := write(termA(), "job")(ctx, tx)
				d.must(err)
				panic("no")
			})
		}()
		// The lock is free.
		d.do(termA(), "next")
		d.showsHistory(entry{"next", 33})
	})
}

func TestAChangeCannotPassItsTransactionByUnnoticed(t *testing.T) {
	d := newDestination(t)
	for _, script := range []string{"COMMIT", "COMMIT; BEGIN"} {
		operation := strings.Trim(strings.ReplaceAll(script, "; ", "-"), ";")
		_, err := d.fence(termA()).Do(t.Context(), operation, func(ctx context.Context, tx sqlfence.Tx) ([]byte, error) {
			for statement := range strings.SplitSeq(script, ";") {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		if !errors.Is(err, sqlfence.ErrUnknown) {
			t.Errorf("%s: want an unknown outcome, got %v", script, err)
		}
	}
	finding, err := d.fence(termA()).Lookup(t.Context(), "COMMIT")
	d.must(err)
	equal(t, "recorded", false, finding.Recorded)
}

func TestOperationIDs(t *testing.T) {
	d := newDestination(t)
	for _, operation := range []string{"", "with space", "a/b", "ü", strings.Repeat("x", 129)} {
		if _, err := d.fence(termA()).Do(t.Context(), operation, d.never); err == nil {
			t.Errorf("%q was accepted", operation)
		}
	}
	longest := strings.Repeat("x", 128)
	equal(t, "operation", longest, d.do(termA(), longest).Operation)
}

func TestRetentionHasAHorizon(t *testing.T) {
	d := newDestination(t)
	keep := sqlfence.Options{Retain: 3}
	apply := func(p *term, operation string) sqlfence.Outcome {
		t.Helper()
		outcome, err := d.fence(p, keep).Do(t.Context(), operation, write(p, operation))
		d.must(err)
		return outcome
	}
	first := apply(termA(), "op-1")
	second := apply(termA(), "op-2")
	for i := 3; i <= 5; i++ {
		apply(termB(), fmt.Sprintf("op-%d", i))
	}
	finding, err := d.fence(termB()).Lookup(t.Context(), "op-1")
	d.must(err)
	equal(t, "finding", sqlfence.Finding{Operation: "op-1", Horizon: sqlfence.Horizon{Generation: 33, AppliedAt: second.AppliedAt}}, finding)
	if !first.AppliedAt.Before(second.AppliedAt) || !strings.Contains(finding.String(), "not recorded; horizon starts at ") {
		t.Errorf("finding: %s", finding)
	}
	finding, err = d.fence(termB()).Lookup(t.Context(), "op-3")
	d.must(err)
	equal(t, "op-3 is recorded", true, finding.Recorded)

	var records int
	d.must(d.db.QueryRowContext(t.Context(), "SELECT count(*) FROM fencedlease_operations").Scan(&records))
	equal(t, "records", 3, records)
	// A smaller bound holds from the next operation on.
	keep.Retain = 1
	apply(termB(), "op-6")
	d.must(d.db.QueryRowContext(t.Context(), "SELECT count(*) FROM fencedlease_operations").Scan(&records))
	equal(t, "records", 1, records)
}

func TestLeasesDoNotSeeEachOther(t *testing.T) {
	d := newDestination(t)
	d.do(termB(), "job")
	// The same lease of another cluster, say.
	other := sqlfence.Options{Name: "west/reports/report-writer"}
	outcome, err := d.fence(termA(), other).Do(t.Context(), "job", write(termA(), "job"))
	d.must(err)
	equal(t, "already applied", false, outcome.AlreadyApplied)
	d.showsHistory(entry{"job", 34}, entry{"job", 33})
}

// Duplicates of an operation, asked for at once by two terms of one lease through pools of their own, are applied once, and
// every caller that is not fenced learns of the one record.
func TestDuplicatesAtOnceAreAppliedOnce(t *testing.T) {
	d := newDestination(t)
	const jobs, callers = 20, 6
	var all sync.WaitGroup
	for i := range callers {
		p := termA()
		if i%2 == 1 {
			p = termB()
		}
		fence := d.fenceOn(postgres.OpenT(t, server.DSN(d.name)), p)
		all.Go(func() {
			for j := range jobs {
				operation := fmt.Sprintf("job-%d", j)
				outcome, err := fence.Do(t.Context(), operation, write(p, operation))
				switch {
				case err == nil && string(outcome.Result) != fmt.Sprintf("by %d", outcome.Generation):
					t.Errorf("%s: %+v", operation, outcome)
				case err != nil && p.generation == 34:
					t.Errorf("%s: %v", operation, err)
				case err != nil:
					d.refused(err, fenced.StaleToken)
				}
			}
		})
	}
	all.Wait()
	seen := map[string]bool{}
	highest := int64(0)
	for _, e := range d.history() {
		if seen[e.Operation] || e.Generation < highest {
			t.Errorf("%+v was applied again, or after generation %d", e, highest)
		}
		seen[e.Operation], highest = true, e.Generation
	}
	equal(t, "operations", jobs, len(seen))
}

// The database's default isolation does not reach the fence: under REPEATABLE READ a transaction would not see what was
// committed while it waited for the lock.
func TestTheDefaultIsolationChangesNothing(t *testing.T) {
	for _, isolation := range []string{"repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			d := newDestination(t)
			d.exec("ALTER DATABASE " + d.name + " SET default_transaction_isolation = '" + isolation + "'")
			db := postgres.OpenT(t, server.DSN(d.name))
			d.must(d.fenceOn(db, termA()).Take(t.Context()))

			entered, proceed := make(chan struct{}), make(chan struct{})
			var all sync.WaitGroup
			all.Go(func() {
				_, err := d.fenceOn(db, termA()).Do(t.Context(), "job", func(ctx context.Context, tx sqlfence.Tx) ([]byte, error) {
					close(entered)
					<-proceed
					return write(termA(), "job")(ctx, tx)
				})
				if err != nil {
					t.Errorf("the first: %v", err)
				}
			})
			<-entered
			all.Go(func() {
				outcome, err := d.fenceOn(db, termB()).Do(t.Context(), "job", d.never)
				if err != nil || !outcome.AlreadyApplied {
					t.Errorf("the second: %+v, %v", outcome, err)
				}
			})
			d.eventually("the second waits", func() bool { return d.waiting() == 1 })
			close(proceed)
			all.Wait()
			d.showsHistory(entry{"job", 33})
		})
	}
}

// One connection is enough, also to look an operation up.
func TestAPoolOfOneConnection(t *testing.T) {
	d := newDestination(t)
	proxy := d.proxy()
	db := postgres.OpenT(t, proxy.DSN(d.name))
	db.SetMaxOpenConns(1)
	fence := d.fenceOn(db, termA())
	_, err := fence.Do(t.Context(), "one", write(termA(), "one"))
	d.must(err)
	proxy.LoseAnswer(postgres.Message.Commits)
	outcome, err := fence.Do(t.Context(), "two", write(termA(), "two"))
	d.must(err)
	equal(t, "already applied", true, outcome.AlreadyApplied)
	_, err = fence.Lookup(t.Context(), "two")
	d.must(err)
	if open := db.Stats().InUse; open != 0 {
		t.Errorf("%d connections are in use", open)
	}
}

func TestMigrationsMayRunAtOnceAndAgain(t *testing.T) {
	name, err := server.CreateDatabase(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	db := postgres.OpenT(t, server.DSN(name))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := sqlfence.Migrate(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Run("the whole script at once does the same", func(t *testing.T) {
		if _, err := db.ExecContext(t.Context(), sqlfence.Schema); err != nil {
			t.Error(err)
		}
	})
}

// The rights that Schema names are enough.
func TestAWriterNeedsTheRightsOfTheSchemaOnly(t *testing.T) {
	d := newDestination(t)
	d.exec("CREATE ROLE " + d.name + "_writer LOGIN")
	d.exec("GRANT SELECT, INSERT, UPDATE ON fencedlease_control TO " + d.name + "_writer")
	d.exec("GRANT SELECT, INSERT, DELETE ON fencedlease_operations TO " + d.name + "_writer")
	db := postgres.OpenT(t, strings.Replace(server.DSN(d.name), "user=postgres", "user="+d.name+"_writer", 1))
	fence := d.fenceOn(db, termA(), sqlfence.Options{Retain: 1})
	nothing := func(context.Context, sqlfence.Tx) ([]byte, error) { return nil, nil }
	for _, operation := range []string{"one", "two", "two"} {
		_, err := fence.Do(t.Context(), operation, nothing)
		d.must(err)
	}
	_, err := sqlfence.Find(t.Context(), db, lease, "two")
	d.must(err)
	if _, err := db.ExecContext(t.Context(), "DELETE FROM fencedlease_control"); err == nil {
		t.Error("the writer can remove what refuses older generations")
	}
}

func TestACancelledCallIsNotApplied(t *testing.T) {
	d := newDestination(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := d.fence(termA()).Do(ctx, "job", func(ctx context.Context, tx sqlfence.Tx) ([]byte, error) {
		defer cancel()
		return write(termA(), "job")(ctx, tx)
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, sqlfence.ErrUnknown) {
		t.Errorf("want %v, got %v", context.Canceled, err)
	}
	d.showsHistory()
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	db := &sql.DB{}
	for name, make := range map[string]func() (*sqlfence.Fence, error){
		"no database":        func() (*sqlfence.Fence, error) { return sqlfence.New(nil, termA(), sqlfence.Options{}) },
		"no possession":      func() (*sqlfence.Fence, error) { return sqlfence.New(db, nil, sqlfence.Options{}) },
		"negative retention": func() (*sqlfence.Fence, error) { return sqlfence.New(db, termA(), sqlfence.Options{Retain: -1}) },
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := sqlfence.New(db, termA(), sqlfence.Options{MaxPause: -time.Second}); err != nil {
		t.Error(err)
	}
}
