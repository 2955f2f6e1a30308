//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence_test

import (
	"testing"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/sqlfence"
)

// The database is put back to what it was under an older generation. Its changes and its records go back together.
func TestTheDatabaseIsRestored(t *testing.T) {
	d := newDestination(t)
	d.do(termA(), "one")
	backup, err := d.backup()
	d.must(err)
	d.do(termA(), "two")
	d.do(termB(), "three")
	d.must(server.RestoreDatabase(t.Context(), d.name, backup))
	d.eventually("the pool has noticed", func() bool { return d.db.PingContext(t.Context()) == nil })
	d.showsHistory(entry{"one", 33})

	t.Run("not promised: until the present term has written or taken, an older one may", func(*testing.T) {
		d.do(termA(), "late")
	})
	t.Run("from then on it is fenced again", func(t *testing.T) {
		d.must(d.fence(termB()).Take(t.Context()))
		_, err := d.fence(termA()).Do(t.Context(), "later", d.never)
		d.refused(err, fenced.StaleToken)
	})
	t.Run("what was undone is not recorded, and is applied again by who asks for it; what was kept is not", func(t *testing.T) {
		equal(t, "two was recorded", false, d.do(termB(), "two").AlreadyApplied)
		equal(t, "one was recorded", true, d.do(termB(), "one").AlreadyApplied)
	})
	d.showsHistory(entry{"one", 33}, entry{"late", 33}, entry{"two", 34})
}

// backup returns a copy of the database.
func (d *destination) backup() (string, error) {
	d.Helper()
	d.db.SetMaxIdleConns(0) // closes those that are open: a database that is copied must be left alone
	defer d.db.SetMaxIdleConns(2)
	return server.CreateDatabase(d.Context(), d.name)
}

// The lease is put back, so that its generations are below what the database has seen.
func TestTheLeaseIsRestored(t *testing.T) {
	d := newDestination(t)
	d.do(termB(), "one")

	t.Run("its terms are refused, and told what to do", func(t *testing.T) {
		restored := &term{generation: 30, id: "rrrrrrrr"}
		_, err := d.fence(restored).Do(t.Context(), "two", d.never)
		if stored := d.refused(err, fenced.StaleToken); stored.Generation != 34 {
			t.Errorf("the refusal does not say how far to raise the lease: %v", stored)
		}
	})
	t.Run("a term that reuses a generation is refused as another one", func(t *testing.T) {
		_, err := d.fence(termFork()).Do(t.Context(), "two", d.never)
		d.refused(err, fenced.ForkedTerm)
	})
	t.Run("once the lease is raised above what the database tells, they write", func(t *testing.T) {
		control, err := sqlfence.Read(t.Context(), d.db, lease)
		d.must(err)
		d.do(&term{generation: control.Token.Generation + 1, id: "ssssssss"}, "two")
	})
	d.showsHistory(entry{"one", 34}, entry{"two", 35})
}
