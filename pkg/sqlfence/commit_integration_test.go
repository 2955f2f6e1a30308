//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence_test

import (
	"errors"
	"testing"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/sqlfence"
	"github.com/fencedlease/fencedlease/test/postgres"
)

// lossy returns a fence of the first term behind a proxy, with a connection that is made.
func (d *destination) lossy(options ...sqlfence.Options) (*postgres.Proxy, *sqlfence.Fence) {
	d.Helper()
	proxy := d.proxy()
	db := postgres.OpenT(d.T, proxy.DSN(d.name))
	d.must(db.PingContext(d.Context()))
	return proxy, d.fenceOn(db, termA(), options...)
}

func TestALostAnswerToTheCommitIsLookedUp(t *testing.T) {
	t.Run("it was applied: the answer was lost", func(t *testing.T) {
		d := newDestination(t)
		proxy, fence := d.lossy()
		proxy.LoseAnswer(postgres.Message.Commits)
		outcome, err := fence.Do(t.Context(), "job", write(termA(), "job"))
		d.must(err)
		equal(t, "result", "by 33", string(outcome.Result))
		again, err := fence.Do(t.Context(), "job", d.never)
		d.must(err)
		equal(t, "outcome of the next call", outcome, again)
		d.showsHistory(entry{"job", 33})
	})
	t.Run("it was not applied: the commit has never arrived", func(t *testing.T) {
		d := newDestination(t)
		proxy, fence := d.lossy(sqlfence.Options{MaxPause: maxPause})
		hold := proxy.Hold(postgres.Message.Commits)
		done := d.start(fence, termA(), "job")
		<-hold.Entered()
		hold.Abandon()
		r := d.await("the call", done)
		hold.Release() // to a session that the database has ended
		if r.err == nil || errors.Is(r.err, sqlfence.ErrUnknown) {
			t.Errorf("want an error that says it was not applied, got %+v, %v", r.outcome, r.err)
		}
		d.showsHistory()
		d.do(termA(), "job")
	})
	t.Run("it is applied while it is being looked up: the commit arrives late", func(t *testing.T) {
		d := newDestination(t)
		proxy, fence := d.lossy(sqlfence.Options{MaxPause: -1})
		hold := proxy.Hold(postgres.Message.Commits)
		done := d.start(fence, termA(), "job")
		<-hold.Entered()
		hold.Abandon()
		d.eventually("the lookup waits for the lost transaction", func() bool { return d.waiting() == 1 })
		hold.Release()
		r := d.await("the call", done)
		d.must(r.err)
		equal(t, "already applied", true, r.outcome.AlreadyApplied)
		d.showsHistory(entry{"job", 33})
	})
	t.Run("it is not known: the database is gone", func(t *testing.T) {
		d := newDestination(t)
		proxy, fence := d.lossy(sqlfence.Options{MaxPause: -1})
		hold := proxy.Hold(postgres.Message.Commits)
		done := d.start(fence, termA(), "job")
		<-hold.Entered()
		d.must(proxy.Close())
		r := d.await("the call", done)
		var unknown *sqlfence.UnknownError
		if !errors.As(r.err, &unknown) || unknown.Operation != "job" || !errors.Is(r.err, sqlfence.ErrUnknown) {
			t.Fatalf("want an unknown outcome, got %+v, %v", r.outcome, r.err)
		}
		// By another way the answer is found.
		finding, err := d.fence(termA()).Lookup(t.Context(), "job")
		d.must(err)
		equal(t, "recorded", false, finding.Recorded)
	})
	t.Run("a successor has applied it meanwhile", func(t *testing.T) {
		d := newDestination(t)
		proxy, fence := d.lossy(sqlfence.Options{MaxPause: maxPause})
		hold := proxy.Hold(postgres.Message.Commits)
		done := d.start(fence, termA(), "job")
		<-hold.Entered()
		b := d.start(d.fence(termB()), termB(), "job")
		d.must(d.await("the successor", b).err)
		hold.Release()
		r := d.await("the call", done)
		d.must(r.err)
		equal(t, "outcome", sqlfence.Outcome{Record: r.outcome.Record, AlreadyApplied: true}, r.outcome)
		equal(t, "generation", 34, r.outcome.Generation)
		d.showsHistory(entry{"job", 34})
	})
}

// A successor that looks an operation up gets a final answer: no transaction of the old leader commits it afterwards, also
// one that waits to be sent.
func TestALookupOfASuccessorIsFinal(t *testing.T) {
	d := newDestination(t)
	d.do(termA(), "before")
	proxy, fence := d.lossy()
	first := true
	hold := proxy.Hold(func(postgres.Message) bool { is := first; first = false; return is })
	done := d.start(fence, termA(), "job")
	<-hold.Entered()

	finding, err := sqlfence.Find(t.Context(), d.db, lease, "job")
	d.must(err)
	equal(t, "recorded, to who holds no term", false, finding.Recorded)
	finding, err = d.fence(termB()).Lookup(t.Context(), "job")
	d.must(err)
	equal(t, "recorded, to the successor", false, finding.Recorded)
	hold.Release()
	d.refused(d.await("the old leader", done).err, fenced.StaleToken)
	d.showsHistory(entry{"before", 33})
}

// The server crashes with a transaction open and answers lost; what it says afterwards is what counts.
func TestTheDatabaseCrashes(t *testing.T) {
	own, err := postgres.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	shared := server
	server = own
	t.Cleanup(func() { server = shared })
	d := newDestination(t)
	d.do(termA(), "one")
	proxy, fence := d.lossy(sqlfence.Options{MaxPause: -1})
	hold := proxy.Hold(postgres.Message.Commits)
	done := d.start(fence, termA(), "two")
	<-hold.Entered()
	d.must(own.Kill())
	hold.Release()
	crashed := d.await("the call", done)
	d.must(own.Run(t.Context()))
	d.eventually("the pool has noticed", func() bool { return d.db.PingContext(t.Context()) == nil })
	outcome, err := d.fence(termB()).Do(t.Context(), "one", d.never)
	d.must(err)
	equal(t, "already applied", true, outcome.AlreadyApplied)
	two := d.do(termB(), "two")
	if crashed.err == nil && !two.AlreadyApplied {
		t.Errorf("what was confirmed before the crash is lost: %+v", crashed.outcome)
	}
	_, err = d.fence(termA()).Do(t.Context(), "two", d.never)
	d.refused(err, fenced.StaleToken)
	d.showsHistory(entry{"one", 33}, entry{"two", two.Generation})
}
