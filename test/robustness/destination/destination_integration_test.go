//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/postgres"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard()) // controller-runtime's client asks for one
	if postgres.Skipped() {
		fmt.Fprintln(os.Stderr, "skipped: "+postgres.SkipVariable+" is set")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func newSeed(t *testing.T) uint64 {
	t.Helper()
	seed, err := history.NewSeed()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s=%d", history.SeedVariable, seed)
	return seed
}

func startServer(t *testing.T) *postgres.Server {
	t.Helper()
	server, err := postgres.Start(t.Context(), Settings()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("stop PostgreSQL: %v", err)
		}
	})
	return server
}

// TestTraffic breaks the database and the lease while leaders and ex-leaders write.
func TestTraffic(t *testing.T) {
	seed := newSeed(t)
	server := startServer(t)
	lease, err := NewLease(t.Context(), env.StartT(t, env.Options{WithoutEndpoints: true}))
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWorld(t.Context(), Options{Seed: seed, Server: server, Issuer: lease, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	leading, stop := context.WithCancel(t.Context())
	var leads sync.WaitGroup
	leads.Go(func() { w.Lead(leading) })
	faults := []func() error{
		func() error { return w.Crash(t.Context()) },
		func() error { return w.Crash(t.Context()) },
		func() error { return w.Restore(t.Context(), 2*time.Second, false) },
		func() error { return w.Restore(t.Context(), 2*time.Second, true) },
		func() error { return w.RestoreIssuer(t.Context(), lease, 2*time.Second) },
	}
	random := rand.New(rand.NewPCG(seed, 2))
	random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	history.Wait(t.Context(), 2*time.Second)
	for _, fault := range faults {
		if err = fault(); err != nil {
			t.Error(err)
			break
		}
		history.Wait(t.Context(), 2500*time.Millisecond)
	}
	stop()
	leads.Wait()
	run, err := w.Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stats := Count(run)
	t.Logf("%d epochs of the database\n%s", len(run.Epochs), stats)
	for _, text := range Shown(Check(run)) {
		t.Error(text)
	}
	for _, text := range stats.Least(Least()) {
		t.Error(text)
	}
}
