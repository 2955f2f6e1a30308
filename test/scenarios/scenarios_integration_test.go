// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package scenarios_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
	"github.com/fencedlease/fencedlease/test/robustness/pause"
	"github.com/fencedlease/fencedlease/test/scenarios"
)

// The product on a real API server ends every story as the pure decision does.
func TestStoriesOnARealAPIServer(t *testing.T) {
	cluster := env.StartT(t, env.Options{})
	if err := cluster.InstallGuardedCRD(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := product.Install(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	judged := pause.NewJudgements()
	// The webhook logs by the process's logger.
	ctrl.SetLogger(pause.DebugLog(judged))
	manager, err := product.StartManager(t.Context(), cluster, ctrl.Log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := manager.Stop(); err != nil {
			t.Errorf("stop manager: %v", err)
		}
	})
	gap, err := pause.StartGap(t, cluster)
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range scripts(t) {
		t.Run(name, func(t *testing.T) {
			backend, err := scenarios.NewCluster(cluster, cluster.CreateNamespace(t), gap, judged.Admissions)
			if err != nil {
				t.Fatal(err)
			}
			got, err := scenarios.Play(t.Context(), script, backend)
			if err != nil {
				t.Fatalf("%v\n%s", err, got)
			}
			if diff := cmp.Diff(script, got); diff != "" {
				t.Errorf("(-script +got):\n%s", diff)
			}
		})
	}
}
