//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/robustness/scenarios"
	"github.com/fencedlease/fencedlease/test/robustness/traffic"
)

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard()) // controller-runtime's client asks for one
	if actor := os.Getenv(traffic.Variable); actor != "" {
		os.Exit(beActor(actor))
	}
	os.Exit(m.Run())
}

// beActor is the main function of the test binary when it is an actor.
func beActor(config string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // this is a main function
	defer cancel()
	if err := traffic.Main(ctx, config, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

const (
	// seedVariable repeats the choices of a run.
	seedVariable = "ROBUSTNESS_SEED"
	// durationVariable makes a run long.
	durationVariable = "ROBUSTNESS_DURATION"
	// dirVariable is where histories are kept; those of runs that pass, too.
	dirVariable = "ROBUSTNESS_DIR"
)

func TestFirst(t *testing.T) {
	run(t, scenarios.Options{
		Name: "first", APIServers: 1, EtcdMembers: 1,
		Leases: []scenarios.Lease{{Name: "lazy", Handover: v1alpha1.HandoverLazy}},
		Faults: func(w *scenarios.World) []scenarios.Choice { return w.Leaders()[:2] },
	})
}

func run(t *testing.T, options scenarios.Options) {
	t.Helper()
	options.Seed = rand.Uint64() //nolint:gosec // printed below, so that it can be repeated
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if options.Seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed: %s=%d", seedVariable, options.Seed)
	if text := os.Getenv(durationVariable); text != "" {
		var err error
		if options.Duration, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	options.LeaseSeconds, options.Workers, options.Pace, options.Zombie = 3, 2, 40*time.Millisecond, 40
	options.Between, options.Quiet = 2*time.Second, 4*time.Second
	options.Manager = os.Getenv(scenarios.ManagerVariable)
	options.Say = t.Logf
	var err error
	if options.Executable, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	base := os.Getenv(dirVariable)
	if base == "" {
		base = filepath.Join(os.TempDir(), "fencedlease-robustness")
	}
	options.Dir = filepath.Join(base, options.Name+"-"+strconv.FormatUint(options.Seed, 10))
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := scenarios.Run(t.Context(), options); err != nil {
		t.Fatalf("%v\nthe history so far is in %s", err, options.Dir)
	}
	t.Logf("history in %s", options.Dir)
}
