// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencedlease/fencedlease/internal/manager"
)

func TestPageIsUpToDate(t *testing.T) {
	want, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := write(&got, manager.Collectors()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("docs/metrics.md, to be written anew by make metrics-docs (-want +got):\n%s", diff)
	}
}

// TestPageHasWhatARunningManagerRegisters compares with the list that a test of a running manager keeps.
func TestPageHasWhatARunningManagerRegisters(t *testing.T) {
	running, err := os.ReadFile("../../internal/manager/testdata/metrics.golden")
	if err != nil {
		t.Fatal(err)
	}
	found, _, err := describe(manager.Collectors())
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, m := range found {
		fmt.Fprintf(&got, "%s %s {%s}\n", m.name, m.kind, strings.Join(m.labels, ","))
	}
	if diff := cmp.Diff(string(running), got.String()); diff != "" {
		t.Errorf("metrics (-of a running manager +of the page):\n%s", diff)
	}
}

// TestSeriesKeepToTheirSets looks at the series that are there before anything happens.
func TestSeriesKeepToTheirSets(t *testing.T) {
	_, sets, err := describe(manager.Collectors())
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	for _, c := range manager.Collectors() {
		registry.MustRegister(c)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range families {
		for _, series := range f.GetMetric() {
			for _, label := range series.GetLabel() {
				seen++
				if !slices.Contains(sets[f.GetName()][label.GetName()], label.GetValue()) {
					t.Errorf("%s: %s=%q is not in its set", f.GetName(), label.GetName(), label.GetValue())
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d labels were looked at", seen)
	}
	for name, labels := range sets {
		for label, values := range labels {
			if len(values) > 40 || len(slices.Compact(slices.Sorted(slices.Values(values)))) != len(values) {
				t.Errorf("%s: %s has %d values, or some twice", name, label, len(values))
			}
		}
	}
}

// careless is a collector with one metric.
type careless struct {
	prometheus.Collector
	sets map[string]map[string][]string
}

func (c careless) LabelSets() map[string]map[string][]string { return c.sets }

func TestWhatIsNotBoundedIsRefused(t *testing.T) {
	counter := func() *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fencedlease_careless_total", Help: "x"}, []string{"lease"})
		c.WithLabelValues("a")
		return c
	}
	for name, c := range map[string]careless{
		"a label has no set":  {counter(), nil},
		"a set is empty":      {counter(), map[string]map[string][]string{"fencedlease_careless_total": {"lease": nil}}},
		"a set has no label":  {counter(), map[string]map[string][]string{"fencedlease_careless_total": {"lease": {"a"}, "user": {"b"}}}},
		"a set has no metric": {counter(), map[string]map[string][]string{"fencedlease_careless_total": {"lease": {"a"}}, "other": {}}},
		"a metric has no series": {
			prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fencedlease_careless_total", Help: "x"}, []string{"lease"}),
			map[string]map[string][]string{"fencedlease_careless_total": {"lease": {"a"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var page strings.Builder
			if err := write(&page, append(manager.Collectors(), c)); err == nil {
				t.Errorf("no complaint about %v", slices.Collect(maps.Keys(c.sets)))
			}
		})
	}
}
