// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func counterOf(t *testing.T, m *Metrics, name string, labels ...string) float64 {
	t.Helper()
	found := -1.0
	each(t, m, name, func(values []string, counter, _ float64) {
		if slices.Equal(values, labels) {
			found = counter
		}
	})
	return found
}

func histogramSum(t *testing.T, m *Metrics, name string) float64 {
	t.Helper()
	found := -1.0
	each(t, m, name, func(_ []string, _, sum float64) { found = sum })
	return found
}

func each(t *testing.T, m *Metrics, name string, see func(labels []string, counter, sum float64)) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var values []string
			for _, l := range metric.GetLabel() {
				values = append(values, l.GetValue())
			}
			if family.GetName() == name {
				see(values, metric.GetCounter().GetValue(), metric.GetHistogram().GetSampleSum())
			}
		}
	}
}

// TestSeriesBeginAtZero: a rate over a series that is not there yet misses its first event.
func TestSeriesBeginAtZero(t *testing.T) {
	m := NewMetrics()
	for name, sets := range m.LabelSets() {
		for _, values := range sets {
			for _, value := range values {
				if got := counterOf(t, m, name, value); got != 0 {
					t.Errorf("%s{%s} is %v, want 0", name, value, got)
				}
			}
		}
	}
	if got := counterOf(t, m, "fencedlease_late_creates_total", actionDeleted); got != 0 {
		t.Errorf("late creates begin at %v", got)
	}
	m.late(true)
	m.late(false)
	m.stamped(stampGone)
	for series, want := range map[string]float64{actionDeleted: 1, actionReported: 1} {
		if got := counterOf(t, m, "fencedlease_late_creates_total", series); got != want {
			t.Errorf("%s: got %v, want %v", series, got, want)
		}
	}
}
