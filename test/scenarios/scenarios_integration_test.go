// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package scenarios_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/robustness/pause"
	"github.com/fencedlease/fencedlease/test/scenarios"
)

// The product on a real API server ends every story as the pure decision does.
func TestStoriesOnARealAPIServer(t *testing.T) {
	cluster := env.StartT(t, env.Options{})
	judged, gap, err := pause.StartProduct(t, cluster)
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
