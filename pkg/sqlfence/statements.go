// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence

import (
	"database/sql"

	"github.com/fencedlease/fencedlease/pkg/token"
)

const (
	// takeOver creates the control row, or lets a newer generation have it. Either way the row is locked from here on, also
	// where it stays as it is. How long the transaction may pause from then on is set as well, as others wait for the lock.
	takeOver = `
INSERT INTO fencedlease_control AS control (lease, generation, term, taken_at)
SELECT $1::text, $2::bigint, $3::text, clock_timestamp()
WHERE set_config('idle_in_transaction_session_timeout', $4::text, true) IS NOT NULL
ON CONFLICT (lease) DO UPDATE SET generation = excluded.generation, term = excluded.term, taken_at = excluded.taken_at
WHERE control.generation < excluded.generation`

	// stand stands in for a control row that is not there. It waits for a transaction that has made one and is still under
	// way, which a lock would not see, and does nothing if the row is there.
	stand = `
INSERT INTO fencedlease_control (lease, generation, term, taken_at) VALUES ($1::text, 1, '00000000', clock_timestamp())
ON CONFLICT (lease) DO NOTHING`

	// lock waits until no transaction has the control row. The row must be read by a later statement: this one sees other
	// tables as they were before it waited.
	lock = `
SELECT set_config('idle_in_transaction_session_timeout', $2::text, true) FROM fencedlease_control
WHERE lease = $1::text FOR UPDATE`

	// inspect reads the control row and an operation. It comes after a statement that locks the row, so that it waits for
	// nothing and sees all that was committed by those who had the lock before.
	inspect = `
SELECT control.generation, control.term, control.taken_at, control.position,
  control.forgotten_position, control.forgotten_generation, control.forgotten_at,
  operation.generation, operation.term, operation.applied_at, operation.result,
  pg_current_xact_id()::text
FROM fencedlease_control AS control
LEFT JOIN fencedlease_operations AS operation ON operation.lease = control.lease AND operation.operation = $2::text
WHERE control.lease = $1::text
FOR UPDATE OF control`

	// record records an operation at its position, and forgets those that are too far back. It does nothing if the control
	// row is not that of the possession any more, or if the transaction is not the one that has checked it.
	record = `
WITH forgotten AS (
  DELETE FROM fencedlease_operations
  WHERE lease = $1::text AND position <= $8::bigint AND pg_current_xact_id()::text = $7::text
  RETURNING position, generation, applied_at
), horizon AS (
  SELECT max(position) AS position, max(generation) AS generation, max(applied_at) AS applied_at FROM forgotten
), control AS (
  UPDATE fencedlease_control AS control SET
    position = $5::bigint,
    forgotten_position = greatest(control.forgotten_position, horizon.position),
    forgotten_generation = greatest(control.forgotten_generation, horizon.generation),
    forgotten_at = greatest(control.forgotten_at, horizon.applied_at)
  FROM horizon
  WHERE control.lease = $1::text AND control.generation = $2::bigint AND control.term = $3::text
    AND pg_current_xact_id()::text = $7::text
  RETURNING control.lease
)
INSERT INTO fencedlease_operations (lease, operation, position, generation, term, applied_at, result)
SELECT control.lease, $4::text, $5::bigint, $2::bigint, $3::text, clock_timestamp(), $6::bytea FROM control
RETURNING applied_at`
)

// controlRow is the control row of a lease, with one operation.
type controlRow struct {
	stored    token.Token
	takenAt   sql.NullTime
	position  int64
	forgotten int64
	horizon   Horizon
	// recorded says that the operation is.
	recorded bool
	record   Record
	// transaction is the id of the transaction that read the row.
	transaction string
}

// scanControl reads what inspect returns.
func scanControl(row *sql.Row) (controlRow, error) {
	var (
		c                               controlRow
		forgottenGeneration, generation sql.NullInt64
		forgottenAt, appliedAt          sql.NullTime
		term                            sql.NullString
	)
	err := row.Scan(&c.stored.Generation, &c.stored.Term, &c.takenAt, &c.position,
		&c.forgotten, &forgottenGeneration, &forgottenAt,
		&generation, &term, &appliedAt, &c.record.Result,
		&c.transaction)
	c.horizon = Horizon{Generation: forgottenGeneration.Int64, AppliedAt: forgottenAt.Time}
	c.recorded = generation.Valid
	c.record.Generation, c.record.Term, c.record.AppliedAt = generation.Int64, term.String, appliedAt.Time
	return c, err
}

func (c controlRow) finding(operation string) Finding {
	c.record.Operation = operation
	finding := Finding{Operation: operation, Recorded: c.recorded, Horizon: c.horizon}
	if c.recorded {
		finding.Record = c.record
	}
	return finding
}
