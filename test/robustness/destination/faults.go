// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/fencedlease/fencedlease/pkg/sqlfence"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

const (
	// backup is the name of the backup that restores put back.
	backup = "backup"
	// before is how many operations before a backup, and before it is put back, are repeated afterwards.
	before = 10
)

// Crash kills the server and starts it again.
func (w *World) Crash(ctx context.Context) error {
	if err := w.options.Server.Kill(); err != nil {
		return err
	}
	w.took(Crash)
	return w.options.Server.Run(ctx)
}

// aside runs the server, which has been killed, for what must happen while nobody writes.
func (w *World) aside(ctx context.Context, f func(db *sql.DB) error) error {
	return w.options.Server.Aside(ctx, func(open func(string) (*sql.DB, error)) error {
		db, err := open(w.database)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		return f(db)
	})
}

// Restore makes a backup, lets writers write for a while, and puts the backup back. If asked for it raises the control rows to
// the present term before anybody can connect, as docs/destinations.md says.
func (w *World) Restore(ctx context.Context, between time.Duration, raise bool) error {
	server := w.options.Server
	around := w.lately(before)
	next := Epoch{Origin: int(w.epoch.Load()), Backup: history.Now()}
	if err := server.Kill(); err != nil {
		return err
	}
	if err := w.aside(ctx, func(db *sql.DB) error {
		commits, err := readLog(ctx, db, w.database)
		next.Base = len(commits)
		return err
	}); err != nil {
		return err
	}
	if err := server.Save(ctx, backup); err != nil {
		return err
	}
	if err := server.Run(ctx); err != nil {
		return err
	}
	history.Wait(ctx, between)
	around = append(around, w.lately(before)...)
	if err := server.Kill(); err != nil {
		return err
	}
	var commits []Commit
	if err := w.aside(ctx, func(db *sql.DB) (err error) {
		commits, err = readLog(ctx, db, w.database)
		return err
	}); err != nil {
		return err
	}
	// All of the old epoch has happened, and nothing of the next one.
	w.mu.Lock()
	w.run.Epochs[next.Origin].Commits = commits
	w.run.Epochs = append(w.run.Epochs, next)
	w.mu.Unlock()
	w.epoch.Add(1)
	if err := server.Load(ctx, backup); err != nil {
		return err
	}
	if raise {
		if err := w.aside(ctx, func(db *sql.DB) error { return w.raise(ctx, db, *w.current.Load()) }); err != nil {
			return err
		}
		w.took(RaisedRow)
	}
	w.restored.Store(&around)
	w.took(Restore)
	return server.Run(ctx)
}

// raise is what docs/destinations.md says of a control row after a restore.
func (w *World) raise(ctx context.Context, db *sql.DB, to token.Token) error {
	for row := range w.run.Retain {
		_, err := db.ExecContext(ctx, "UPDATE fencedlease_control SET generation = $1, term = $2, taken_at = now() WHERE lease = $3 AND generation < $1",
			to.Generation, to.Term, row)
		if err != nil {
			return fmt.Errorf("raise the control row: %w", err)
		}
	}
	return nil
}

// RestoreIssuer puts a backup of the lease back. Its terms are refused until one meets the newest generation of the database; then
// the lease is raised above it, as docs/destinations.md says.
func (w *World) RestoreIssuer(ctx context.Context, lease *Lease, between time.Duration) error {
	if err := lease.Save(ctx); err != nil {
		return err
	}
	history.Wait(ctx, between)
	if err := lease.Load(ctx); err != nil {
		return err
	}
	w.took(IssuerUndo)
	db, err := w.options.Server.Open(w.database)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	w.haste.Store(true)
	for range 100 {
		if w.forks.Load() > 0 || !history.Wait(ctx, handover/8) {
			break
		}
	}
	w.haste.Store(false)
	highest := int64(0)
	for row := range w.run.Retain {
		control, err := sqlfence.Read(ctx, db, row)
		if err != nil {
			return err
		}
		highest = max(highest, control.Token.Generation)
	}
	if err := lease.Raise(ctx, highest); err != nil {
		return err
	}
	w.took(RaisedLease)
	return nil
}
