// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fencedlease/fencedlease/pkg/token"
)

const (
	// slot is the replication slot that keeps the database's log from the first commit on. It is a part of each backup.
	slot = "history"
	// journal is where changes are made. The number of the call comes back as the result of the operation.
	journal = "CREATE TABLE journal (call bigint PRIMARY KEY, fence text NOT NULL, operation text NOT NULL, generation bigint NOT NULL, term text NOT NULL)"
	// insert is a change.
	insert = "INSERT INTO journal (call, fence, operation, generation, term) VALUES ($1, $2, $3, $4, $5)"
)

// keepLog makes the database keep its log for ReadLog.
func keepLog(ctx context.Context, db *sql.DB, name string) error {
	_, err := db.ExecContext(ctx, "SELECT pg_create_logical_replication_slot($1, 'test_decoding')", slot+"_"+name)
	if err != nil {
		return fmt.Errorf("keep the log of the database: %w", err)
	}
	return nil
}

// readLog returns what was committed, in the order of commits, as the database's log has it. No lock and no record of the fence
// is asked.
func readLog(ctx context.Context, db *sql.DB, name string) ([]Commit, error) {
	calls, err := journaled(ctx, db)
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, "SELECT data FROM pg_logical_slot_peek_changes($1, upto_lsn => NULL, upto_nchanges => NULL, VARIADIC options => ARRAY['include-xids', '0'])", slot+"_"+name)
	if err != nil {
		return nil, fmt.Errorf("read the log of the database: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var commits []Commit
	var open []Commit
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return nil, fmt.Errorf("read the log of the database: %w", err)
		}
		switch line {
		case "BEGIN":
			open = nil
		case "COMMIT":
			commits = append(commits, open...)
		default:
			if open, err = logged(open, line); err != nil {
				return nil, err
			}
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the log of the database: %w", err)
	}
	return commits, complete(commits, calls)
}

// journaled returns the calls whose changes are there.
func journaled(ctx context.Context, db *sql.DB) (calls []int64, err error) {
	rows, err := db.QueryContext(ctx, "SELECT call FROM journal")
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var call int64
		if err := rows.Scan(&call); err != nil {
			return nil, fmt.Errorf("read the journal: %w", err)
		}
		calls = append(calls, call)
	}
	return calls, rows.Err()
}

// complete checks that the log tells of all that was there: a gap would hide a violation.
func complete(commits []Commit, calls []int64) error {
	logged := map[int64]bool{}
	for _, c := range commits {
		for _, change := range c.Changes {
			logged[change.Call] = true
		}
	}
	for _, call := range calls {
		if !logged[call] {
			return fmt.Errorf("the log of the database does not tell of call %d", call)
		}
	}
	return nil
}

var (
	line   = regexp.MustCompile(`^table public\.(\w+): (INSERT|UPDATE|DELETE): (.*)$`)
	column = regexp.MustCompile(`"?(\w+)"?\[[^]]+\]:('(?:[^']|'')*'|\S+)`)
)

// logged adds a line of the log to the commit of its control row.
func logged(open []Commit, text string) ([]Commit, error) {
	parts := line.FindStringSubmatch(text)
	if parts == nil {
		return nil, fmt.Errorf("the log of the database has a line that is not understood: %q", text)
	}
	r := row{}
	for _, c := range column.FindAllStringSubmatch(parts[3], -1) {
		r[c[1]] = strings.Trim(c[2], "'")
	}
	name := r["lease"] + r["fence"]
	var c *Commit
	for i := range open {
		if open[i].Row == name {
			c = &open[i]
		}
	}
	if c == nil {
		open = append(open, Commit{Row: name})
		c = &open[len(open)-1]
	}
	var err error
	switch parts[1] + " " + parts[2] {
	case "journal INSERT":
		c.Changes = append(c.Changes, Change{Call: r.number("call", &err), Operation: r["operation"], Token: r.token(&err)})
	case "fencedlease_control INSERT", "fencedlease_control UPDATE":
		c.Controls = append(c.Controls, Control{Token: r.token(&err), Position: r.number("position", &err)})
	case "fencedlease_operations INSERT":
		c.Records = append(c.Records, Record{Operation: r["operation"], Token: r.token(&err), Call: r.result(&err), AppliedAt: r.time("applied_at", &err)})
		c.Positions = append(c.Positions, r.number("position", &err))
	case "fencedlease_operations DELETE":
		c.Forgotten = append(c.Forgotten, r["operation"])
	default:
		err = fmt.Errorf("%s of table %s", parts[2], parts[1])
	}
	if err != nil {
		return nil, fmt.Errorf("the log of the database has a line that is not understood: %w: %q", err, text)
	}
	return open, nil
}

// row is a row as the log prints it.
type row map[string]string

func (r row) number(name string, failed *error) int64 {
	n, err := strconv.ParseInt(r[name], 10, 64)
	if err != nil {
		*failed = err
	}
	return n
}

func (r row) token(failed *error) token.Token {
	return token.Token{Generation: r.number("generation", failed), Term: r["term"]}
}

// result is the number of a call, which the log prints as bytes.
func (r row) result(failed *error) int64 {
	text := strings.TrimPrefix(strings.TrimPrefix(r["result"], `\\x`), `\x`)
	digits := make([]byte, 0, len(text)/2)
	for i := 0; i+1 < len(text); i += 2 {
		b, err := strconv.ParseUint(text[i:i+2], 16, 8)
		if err != nil {
			*failed = err
			return 0
		}
		digits = append(digits, byte(b))
	}
	return row{"result": string(digits)}.number("result", failed)
}

func (r row) time(name string, failed *error) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05.999999-07", r[name])
	if err != nil {
		*failed = err
	}
	return t
}
