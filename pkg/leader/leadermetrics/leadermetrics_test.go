// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leadermetrics_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"

	"github.com/fencedlease/fencedlease/pkg/leader"
	"github.com/fencedlease/fencedlease/pkg/leader/leadermetrics"
)

func TestCollectorShowsWhatTheElectorTells(t *testing.T) {
	c := leadermetrics.New(prometheus.Labels{"election": "reports"})
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	c.Acquired(7 * time.Millisecond)
	c.Leading(true)
	c.Renewed(2 * time.Second)
	c.Renewed(9 * time.Second)
	c.Leading(false)
	c.Lost(leader.LossExpired)
	c.Acquired(time.Second)
	c.Leading(true)
	const want = `
# HELP fencedlease_leader_acquisition_seconds Time from when the elector saw the lease free, released or not renewed for its duration, until it had acquired it.
# TYPE fencedlease_leader_acquisition_seconds histogram
fencedlease_leader_acquisition_seconds_bucket{election="reports",le="0.005"} 0
fencedlease_leader_acquisition_seconds_bucket{election="reports",le="0.01"} 1
fencedlease_leader_acquisition_seconds_bucket{election="reports",le="0.025"} 1
fencedlease_leader_acquisition_seconds_bucket{election="reports",le="0.05"} 1
fencedlease_leader_acquisition_seconds_bucket{election="reports",le="0.1"} 1
fencedlease_leader_acquisition_seconds_bucket{election="reports",le="0.25"} 1
fencedlease_leader_acquisition_seconds_bucket{election="reports",le="0.5"} 1
fencedlease_leader_acquisition_seconds_bucket{election="reports",le="1"} 2
fencedlease_leader_acquisition_seconds_bucket{election="reports",le="2.5"} 2
fencedlease_leader_acquisition_seconds_bucket{election="reports",le="5"} 2
fencedlease_leader_acquisition_seconds_bucket{election="reports",le="10"} 2
fencedlease_leader_acquisition_seconds_bucket{election="reports",le="30"} 2
fencedlease_leader_acquisition_seconds_bucket{election="reports",le="+Inf"} 2
fencedlease_leader_acquisition_seconds_sum{election="reports"} 1.007
fencedlease_leader_acquisition_seconds_count{election="reports"} 2
# HELP fencedlease_leader_leading 1 while the elector leads, else 0.
# TYPE fencedlease_leader_leading gauge
fencedlease_leader_leading{election="reports"} 1
# HELP fencedlease_leader_losses_total Terms that were lost, by reason: Expired (no renewal was confirmed in time), Taken (the lease shows another term), Released (somebody else emptied the holder) or Deleted (the FencedLease is gone).
# TYPE fencedlease_leader_losses_total counter
fencedlease_leader_losses_total{election="reports",reason="Deleted"} 0
fencedlease_leader_losses_total{election="reports",reason="Expired"} 1
fencedlease_leader_losses_total{election="reports",reason="Released"} 0
fencedlease_leader_losses_total{election="reports",reason="Taken"} 0
# HELP fencedlease_leader_terms_total Terms that the elector has acquired.
# TYPE fencedlease_leader_terms_total counter
fencedlease_leader_terms_total{election="reports"} 2
`
	err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fencedlease_leader_acquisition_seconds",
		"fencedlease_leader_leading", "fencedlease_leader_losses_total", "fencedlease_leader_terms_total")
	if err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(c, "fencedlease_leader_renew_gap_seconds"); n != 1 {
		t.Errorf("%d histograms of gaps", n)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

func TestTwoElectorsOfOneProgramNeedALabel(t *testing.T) {
	registry := prometheus.NewRegistry()
	for _, election := range []string{"reports", "invoices"} {
		if err := registry.Register(leadermetrics.New(prometheus.Labels{"election": election})); err != nil {
			t.Errorf("register: %v", err)
		}
	}
}

func Example() {
	metrics := leadermetrics.New(nil)
	prometheus.NewRegistry().MustRegister(metrics) // or controller-runtime's metrics.Registry
	elector, err := leader.New(leader.Options{
		Config: &rest.Config{Host: "https://kubernetes.default.svc"}, Namespace: "reports", Name: "report-writer", Identity: "report-7f9c_3b1e",
		Metrics: metrics,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(elector.Identity())
	// Output: report-7f9c_3b1e
}
