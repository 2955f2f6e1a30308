// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence

import (
	"context"
	"database/sql"
	_ "embed" // for Schema
	"fmt"
	"strings"
)

// Schema creates the tables that the package needs, where they are missing, in the first schema of the search path. Its
// comments say which rights a writer needs. It can be given to any tool that migrates databases.
//
//go:embed schema.sql
var Schema string

// migrationLock is the key of the advisory lock under which Migrate runs: two sessions that create the same table at once
// may both find it missing.
const migrationLock = 0x66656e63656c7365

// Migrate runs Schema in one transaction. It may be called by any number of processes at once, and again and again.
func Migrate(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin the migration: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // ended already if all went well
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
		return fmt.Errorf("lock the migration: %w", err)
	}
	// One by one: not every driver takes several statements at once.
	for _, statement := range statementsOf(Schema) {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create the tables of the fence: %w", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit the migration: %w", err)
	}
	return nil
}

// statementsOf returns the statements of a script that has no semicolon but at the end of each.
func statementsOf(script string) []string {
	var code strings.Builder
	for line := range strings.Lines(script) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			code.WriteString(line)
		}
	}
	var statements []string
	for statement := range strings.SplitSeq(code.String(), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			statements = append(statements, statement)
		}
	}
	return statements
}
