// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		values []float64
		want   spread
	}{
		"one value is everything":                     {[]float64{3}, spread{3, 3, 3, 3, 3}},
		"the middle of an odd number is a value":      {[]float64{9, 1, 5, 2, 7}, spread{1, 2, 5, 7, 9}},
		"the middle of an even number is between two": {[]float64{4, 1, 2, 9}, spread{1, 1.75, 3, 5.25, 9}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := spreadOf(tc.values); got != tc.want {
				t.Errorf("want %+v, got %+v", tc.want, got)
			}
		})
	}
}

func TestRatioIsOfResultsOfOneRound(t *testing.T) {
	t.Parallel()
	// The second round met a machine ten times slower; the ratio is 2 in both.
	rounds := []round{
		{place{1, fenced}: {perSecond: 200}, place{1, noop}: {perSecond: 100}},
		{place{1, fenced}: {perSecond: 20}, place{1, noop}: {perSecond: 10}},
	}
	got := []string{ratio(rounds, place{1, fenced}, noop, perSecond), ratio(rounds, place{1, noop}, noop, perSecond)}
	if diff := cmp.Diff([]string{"**2.00** · 2.00–2.00 · 2.00–2.00", "1"}, got); diff != "" {
		t.Errorf("ratios (-want +got):\n%s", diff)
	}
}

func TestSumAddsUpTheSeriesOfOneMetric(t *testing.T) {
	t.Parallel()
	body := []byte("# HELP reads_total All reads.\n# TYPE reads_total counter\n" +
		"reads_total{result=\"ok\"} 5\nreads_total{result=\"not found\"} 1.5e+01\nreads_total_more 100\nseconds 0.25\n")
	got := map[string]float64{"reads_total": sum(body, "reads_total"), "seconds": sum(body, "seconds"), "absent": sum(body, "absent")}
	if diff := cmp.Diff(map[string]float64{"reads_total": 20, "seconds": 0.25, "absent": 0}, got); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
}
