//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/robustness/faults"
	"github.com/fencedlease/fencedlease/test/robustness/history"
	"github.com/fencedlease/fencedlease/test/robustness/report"
	"github.com/fencedlease/fencedlease/test/robustness/scenarios"
	"github.com/fencedlease/fencedlease/test/robustness/traffic"
	"github.com/fencedlease/fencedlease/test/robustness/validate"
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
	// durationVariable makes a run long.
	durationVariable = "ROBUSTNESS_DURATION"
	// dirVariable is where histories are kept; those of runs that pass, too.
	dirVariable = "ROBUSTNESS_DIR"
)

// leases returns those of a scenario, one for each handover. If asked for, the first guards by labels of objects and of their
// namespace, which is not its own, and the second has late creates deleted.
func leases(selecting bool) []scenarios.Lease {
	// Its objects forget operations while they are still repeated.
	lazy := scenarios.Lease{Name: "lazy", Handover: v1alpha1.HandoverLazy, History: 5}
	sealed := scenarios.Lease{Name: "sealed", Handover: v1alpha1.HandoverSeal}
	if selecting {
		lazy.Labels, lazy.Elsewhere = map[string]string{"example.com/guarded": "yes"}, true
		sealed.LateCreates = v1alpha1.LateCreatesDelete
	}
	return []scenarios.Lease{lazy, sealed}
}

// TestSingle has one API server and one member of etcd.
func TestSingle(t *testing.T) {
	run(t, newSeed(t), scenarios.Options{
		Name: "single", APIServers: 1, EtcdMembers: 1, Leases: leases(false),
		Faults: func(w *scenarios.World) []scenarios.Choice {
			return slices.Concat(w.Leaders(), w.LeaderNetwork(), w.WebhookNetwork(), w.APIServers(),
				[]scenarios.Choice{w.Certificates(), w.LateCreate(), w.Restore(false)})
		},
	}, validate.Minimum{
		Operations: 2000, Commits: 800, Handovers: 10, Late: 100, PerVerb: 5, PerCarrier: 5, Repetitions: 50, Restored: 1,
		Faults: slices.Concat(networks(), []string{scenarios.KindPause, scenarios.KindKill, scenarios.KindClock, scenarios.KindCertificates, scenarios.KindRotation, scenarios.KindLateCreate, scenarios.KindRestore}),
	})
}

// TestThree has three members of etcd and two API servers.
func TestThree(t *testing.T) {
	run(t, newSeed(t), scenarios.Options{
		Name: "three", APIServers: 2, EtcdMembers: 3, Leases: leases(true),
		Faults: func(w *scenarios.World) []scenarios.Choice {
			return slices.Concat(w.Leaders()[:2], w.Managers(), w.ManagerNetwork(), w.Etcd(), w.EtcdNetwork(), w.APIServers(),
				[]scenarios.Choice{w.LeaseDeleted(), w.HandoverChanged(), w.LateCreate(), w.Restore(true)})
		},
	}, validate.Minimum{
		Operations: 2000, Commits: 800, Handovers: 10, Late: 100, PerVerb: 5, PerCarrier: 5, Repetitions: 50, Restored: 1,
		Faults: slices.Concat(networks(), []string{scenarios.KindPause, scenarios.KindKill, scenarios.KindLeaseDeleted, scenarios.KindHandover, scenarios.KindLateCreate, scenarios.KindRestoreBump}),
	})
}

// TestLong runs all faults on both kinds of control plane, again and again with other seeds, for as long as
// ROBUSTNESS_DURATION says.
func TestLong(t *testing.T) {
	text := os.Getenv(durationVariable)
	if text == "" {
		t.Skip(durationVariable + " is not set")
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	seed := newSeed(t)
	begun := history.Now()
	var total report.Total
	for i := uint64(0); time.Duration(history.Now()-begun) < duration && !t.Failed(); i++ {
		options := scenarios.Options{Name: "long-single", APIServers: 1, EtcdMembers: 1, Leases: leases(false), Faults: (*scenarios.World).All}
		if i%2 == 1 {
			options.Name, options.APIServers, options.EtcdMembers, options.Leases = "long-three", 2, 3, leases(true)
		}
		t.Run(strconv.FormatUint(seed+i, 10), func(t *testing.T) {
			j := run(t, seed+i, options, validate.Minimum{Operations: 4000, Commits: 1500, Handovers: 20, Late: 200, PerVerb: 10, PerCarrier: 10, Faults: networks()})
			total.Add(j)
			t.Logf("so far, %s", total.String())
		})
	}
	t.Log(total.String())
}

// networks are the kinds of faults of the network.
func networks() []string {
	var kinds []string
	for _, mode := range []env.ProxyMode{env.ProxyDelay, env.ProxyHold, env.ProxyHalfClose, env.ProxyCut} {
		kinds = append(kinds, faults.KindNetwork(mode))
	}
	return kinds
}

func newSeed(t *testing.T) uint64 {
	t.Helper()
	seed, err := history.NewSeed()
	if err != nil {
		t.Fatal(err)
	}
	return seed
}

// run runs a scenario and judges its history. The history of one that fails is kept.
func run(t *testing.T, seed uint64, options scenarios.Options, least validate.Minimum) *report.Judgement {
	t.Helper()
	t.Logf("%s=%d", history.SeedVariable, seed)
	options.Seed = seed
	options.LeaseSeconds, options.Workers, options.Pace, options.Zombie = 3, 2, 30*time.Millisecond, 40
	options.Steal = 15 * time.Second
	options.Between, options.Quiet = 1500*time.Millisecond, 4*time.Second
	options.Manager = os.Getenv(scenarios.ManagerVariable)
	options.Say = t.Logf
	var err error
	if options.Executable, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	keep := os.Getenv(dirVariable)
	base := keep
	if base == "" {
		base = filepath.Join(os.TempDir(), "fencedlease-robustness")
	}
	options.Dir = filepath.Join(base, options.Name+"-"+strconv.FormatUint(seed, 10)+"-"+strconv.Itoa(os.Getpid()))
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := scenarios.Run(t.Context(), options); err != nil {
		t.Fatalf("%v\nthe history so far is in %s", err, options.Dir)
	}
	j := judge(t, options.Dir, least)
	if !t.Failed() && keep == "" {
		if err := os.RemoveAll(options.Dir); err != nil {
			t.Error(err)
		}
	}
	return j
}
