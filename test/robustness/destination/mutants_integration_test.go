//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// replaced is a piece of a statement of the fence that is another one in a mutant.
type replaced struct{ old, new string }

// TestMutants breaks a part of the fence in the statements on their way to the database, and lets the traffic find it. The
// terms come from a counter: what is broken is the database's part.
func TestMutants(t *testing.T) {
	seed := newSeed(t)
	server := startServer(t)
	for name, c := range map[string]struct {
		pieces []replaced
		want   string
	}{
		"the generation is not compared": {
			pieces: []replaced{{"WHERE control.generation < excluded.generation", "WHERE control.generation <> excluded.generation"}},
			want:   neverFall},
		"the generation is compared before the transaction has the lock, and not again": {
			pieces: []replaced{
				{"set_config('idle_in_transaction_session_timeout', $4::text, true) IS NOT NULL\n",
					"set_config('idle_in_transaction_session_timeout', $4::text, true) IS NOT NULL AND NOT EXISTS (SELECT FROM fencedlease_control WHERE lease = $1::text AND generation >= $2::bigint)\n"},
				{"FOR UPDATE OF control", ""},
				{"AND control.generation = $2::bigint AND control.term = $3::text", ""},
			},
			want: neverFall},
		"the operation is not recorded": {
			pieces: []replaced{{"INSERT INTO fencedlease_operations (lease, operation, position, generation, term, applied_at, result)\nSELECT control.lease, $4::text, $5::bigint, $2::bigint, $3::text, clock_timestamp(), $6::bytea FROM control\nRETURNING applied_at",
				"SELECT clock_timestamp() FROM control WHERE $4::text <> '' AND octet_length($6::bytea) > 0"}},
			want: once},
		"operations are forgotten too early": {
			pieces: []replaced{{"position <= $8::bigint", "position <= $8::bigint + 13"}},
			want:   once},
		"a lookup does not wait for the transaction of a lost COMMIT": {
			pieces: []replaced{
				{"VALUES ($1::text, 1, '00000000', clock_timestamp())",
					"SELECT $1::text, 1, '00000000', clock_timestamp() WHERE NOT EXISTS (SELECT FROM fencedlease_control WHERE lease = $1::text)"},
				{"WHERE lease = $1::text FOR UPDATE", "WHERE lease = $1::text"},
				{"FOR UPDATE OF control", ""},
			},
			want: answers},
	} {
		t.Run(name, func(t *testing.T) {
			hits := make([]atomic.Int64, len(c.pieces))
			w, err := NewWorld(t.Context(), Options{Seed: seed, Server: server, Issuer: &Counter{}, Say: t.Logf, Rewrite: func(statement string) string {
				for i, piece := range c.pieces {
					if strings.Contains(statement, piece.old) {
						hits[i].Add(1)
						statement = strings.Replace(statement, piece.old, piece.new, 1)
					}
				}
				return statement
			}})
			if err != nil {
				t.Fatal(err)
			}
			w.haste.Store(true)
			leading, stop := context.WithCancel(t.Context())
			defer stop()
			var leads sync.WaitGroup
			leads.Go(func() { w.Lead(leading) })
			w.watch(t, c.want)
			stop()
			leads.Wait()
			run, err := w.Finish(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			found := Check(run)
			for i := range hits {
				if hits[i].Load() == 0 {
					t.Errorf("no statement has %q", c.pieces[i].old)
				}
			}
			if len(found[c.want]) == 0 {
				t.Log(Count(run))
				t.Errorf("want %q to be violated, got %q", c.want, Shown(found))
			} else {
				t.Logf("found %d times, such as: %s", len(found[c.want]), found[c.want][0])
			}
		})
	}
}

// watch checks the history now and then until a check fails.
func (w *World) watch(t *testing.T, check string) {
	t.Helper()
	db, err := w.options.Server.Open(w.database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for range 20 {
		history.Wait(t.Context(), time.Second)
		run, err := w.soFar(t.Context(), db)
		if err != nil {
			t.Error(err)
			break
		}
		if len(Check(run)[check]) > 0 {
			return
		}
	}
}
