// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pause_test

import (
	"testing"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/robustness/pause"
)

func TestEveryPauseOfEveryWrite(t *testing.T) {
	cluster := env.StartT(t, env.Options{})
	judged, gap, err := pause.StartProduct(t, cluster)
	if err != nil {
		t.Fatal(err)
	}
	system, err := pause.NewProduct(t.Context(), cluster, judged)
	if err != nil {
		t.Fatal(err)
	}
	runner, err := pause.NewRunner(cluster, system, gap)
	if err != nil {
		t.Fatal(err)
	}

	strategies := pause.Strategies()
	cells, impossible := pause.Split(pause.Table(strategies, pause.Carriers()))
	report := pause.NewReport(impossible)
	for _, strategy := range strategies {
		t.Run(string(strategy), func(t *testing.T) {
			results, err := runner.Run(t, strategy, pause.ByStrategy(cells, strategy))
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if want := r.Cell.Expect(); r.Got != want {
					t.Errorf("%s:\nwant %+v\ngot  %+v\n%v", r.Cell, want, r.Got, r.Err)
				}
			}
			report.Add(results)
		})
	}
	t.Logf("\n%s", report)
}
