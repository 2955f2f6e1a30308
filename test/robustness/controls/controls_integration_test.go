// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controls_test

import (
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/robustness/controls"
	"github.com/fencedlease/fencedlease/test/robustness/pause"
)

// TestControlsFailTheTable runs the cells of the lazy strategies with the only carrier that a control can have.
func TestControlsFailTheTable(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	cluster := env.StartT(t, env.Options{})
	if err := cluster.InstallGuardedCRD(t.Context()); err != nil {
		t.Fatal(err)
	}
	gap, err := pause.StartGap(t, cluster)
	if err != nil {
		t.Fatal(err)
	}
	naive := func(lags bool) func(t *testing.T) (pause.System, error) {
		return func(t *testing.T) (pause.System, error) { t.Helper(); return controls.StartNaive(t, cluster, lags) }
	}
	for _, control := range []struct {
		name  string
		start func(t *testing.T) (pause.System, error)
	}{
		{"client-go election", func(*testing.T) (pause.System, error) { return &controls.Election{Cluster: cluster}, nil }},
		{"annotation against a cached lease", naive(false)},
		{"annotation against a cached lease that lags", naive(true)},
	} {
		t.Run(control.name, func(t *testing.T) {
			system, err := control.start(t)
			if err != nil {
				t.Fatal(err)
			}
			runner, err := pause.NewRunner(cluster, system, gap)
			if err != nil {
				t.Fatal(err)
			}
			cells, _ := pause.Split(pause.Table(pause.LazyStrategies(), []pause.Carrier{pause.Annotation, pause.None}))
			violations := controls.Violations{}
			for _, strategy := range pause.LazyStrategies() {
				results, err := runner.Run(t, strategy, pause.ByStrategy(cells, strategy))
				if err != nil {
					t.Fatalf("%s: %v", strategy, err)
				}
				violations.Add(results)
			}
			t.Logf("%s %s", control.name, &violations)
			if violations.Broken() == 0 {
				t.Error("the control breaks nothing: the table shows nothing")
			}
		})
	}
}
