// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/sqlfence"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/postgres"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

const (
	// wide remembers all operations of a run, narrow forgets them while they are still repeated.
	wide         = "fence/wide"
	narrow       = "fence/narrow"
	narrowRetain = 15
	// maxPause is shorter than many of the pauses.
	maxPause = 250 * time.Millisecond
	// handover bounds the time of a term.
	handover = 700 * time.Millisecond
	// workers is how many processes write under a term.
	workers = 2
)

// Settings are what a server needs for a World.
func Settings() []string {
	return []string{"wal_level=logical", "max_replication_slots=20", "max_connections=150", "timezone=UTC"}
}

// Options say what is run.
type Options struct {
	Seed   uint64
	Server *postgres.Server
	Issuer Issuer
	// Rewrite changes the statements of the fence. Nil leaves them.
	Rewrite func(statement string) string
	// Say is told what happens.
	Say func(format string, args ...any)
}

// World is a database with those who write to it.
type World struct {
	options  Options
	database string
	random   *rand.Rand

	begun   int64
	epoch   atomic.Int64
	current atomic.Pointer[token.Token]
	// forks is how many calls were refused as forked. In haste, terms follow each other faster.
	forks  atomic.Int64
	haste  atomic.Bool
	number atomic.Int64
	// restored are operations that were applied shortly before and after the last backup that was put back.
	restored atomic.Pointer[[]key]
	writers  sync.WaitGroup
	// inFull is ended when writers may write no more.
	inFull context.Context //nolint:containedctx // writers outlive the call that begins them
	end    context.CancelFunc

	mu       sync.Mutex
	run      Run
	doubtful []key
	failure  error
}

// NewWorld makes the database.
func NewWorld(ctx context.Context, options Options) (*World, error) {
	w := &World{options: options, begun: history.Now(), random: rand.New(rand.NewPCG(options.Seed, 0))} //nolint:gosec // no secret
	w.run = Run{Retain: map[string]int{wide: 10_000, narrow: narrowRetain}, Epochs: []Epoch{{}}, Faults: map[string]int{}}
	w.inFull, w.end = context.WithCancel(ctx)
	var err error
	if w.database, err = options.Server.CreateDatabase(ctx, ""); err != nil {
		return nil, err
	}
	db, err := options.Server.Open(w.database)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(ctx, journal); err != nil {
		return nil, fmt.Errorf("create the journal: %w", err)
	}
	return w, errors.Join(sqlfence.Migrate(ctx, db), keepLog(ctx, db, w.database))
}

// Lead hands out terms and begins their writers until ctx ends.
func (w *World) Lead(ctx context.Context) {
	random := rand.New(rand.NewPCG(w.options.Seed, 1)) //nolint:gosec // no secret
	for {
		t, err := w.options.Issuer.Next(ctx)
		switch {
		case err == nil:
			w.begin(t)
		case ctx.Err() == nil:
			w.options.Say("no term: %v", err)
		}
		pause := handover/4 + time.Duration(random.Int64N(int64(handover)))
		if w.haste.Load() {
			pause /= 2
		}
		if !history.Wait(ctx, pause) {
			return
		}
	}
}

// begin begins the writers of a term. Those of the terms before go on for a while.
func (w *World) begin(t token.Token) {
	w.current.Store(&t)
	w.mu.Lock()
	w.run.Handovers++
	n := w.run.Handovers
	w.mu.Unlock()
	for i := range workers {
		writer, err := w.newWriter(t, n, i)
		if err != nil {
			w.fail(err)
			return
		}
		w.writers.Go(func() { w.fail(writer.run(w.inFull)) })
	}
}

// Finish ends the writers, and returns the history.
func (w *World) Finish(ctx context.Context) (*Run, error) {
	w.end()
	w.writers.Wait()
	db, err := w.options.Server.Open(w.database)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	run, err := w.soFar(ctx, db)
	w.mu.Lock()
	defer w.mu.Unlock()
	return run, errors.Join(err, w.failure)
}

// soFar returns a copy of the history: the calls that had returned, and the log of the present epoch from afterwards.
func (w *World) soFar(ctx context.Context, db *sql.DB) (*Run, error) {
	w.mu.Lock()
	run := w.run
	w.mu.Unlock()
	commits, err := readLog(ctx, db, w.database)
	if err != nil {
		return nil, err
	}
	run.Epochs = slices.Clone(run.Epochs)
	run.Epochs[len(run.Epochs)-1].Commits = commits
	return &run, nil
}

// lately returns the operations that were applied last, at most some of them.
func (w *World) lately(most int) []key {
	w.mu.Lock()
	defer w.mu.Unlock()
	var keys []key
	for _, call := range slices.Backward(w.run.Calls) {
		if call.Outcome == Applied && len(keys) < most {
			keys = append(keys, key{call.Row, call.Operation})
		}
	}
	return keys
}

// present returns the number of the present operation.
func (w *World) present() int64 { return (history.Now() - w.begun) / int64(jobLength) }

func (w *World) record(call *Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run.Calls = append(w.run.Calls, call)
	if call.Cause == string(fenced.ForkedTerm) {
		w.forks.Add(1)
	}
	if call.Outcome == Unknown || call.Fault == LateCommit {
		w.doubtful = append(w.doubtful, key{call.Row, call.Operation})
	}
}

// doubt returns one of the newest operations of which somebody does not know, or did not for a moment.
func (w *World) doubt(random int) (key, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.doubtful) == 0 {
		return key{}, false
	}
	return w.doubtful[len(w.doubtful)-1-random%min(len(w.doubtful), 4)], true
}

func (w *World) took(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run.Faults[kind]++
}

func (w *World) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure == nil {
		w.failure = err
	}
}
