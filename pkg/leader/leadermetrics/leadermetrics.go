// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leadermetrics shows an elector of package leader in Prometheus. A Collector belongs to one elector and is
// registered where its program likes: the package has no registry and no global state.
package leadermetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencedlease/fencedlease/pkg/leader"
)

const (
	namespace = "fencedlease"
	subsystem = "leader"
)

// Collector is what an elector tells its program of itself.
type Collector struct {
	leading     prometheus.Gauge
	terms       prometheus.Counter
	losses      *prometheus.CounterVec
	gaps        prometheus.Histogram
	acquisition prometheus.Histogram
}

var (
	_ leader.Metrics       = (*Collector)(nil)
	_ prometheus.Collector = (*Collector)(nil)
)

// New returns a collector for Options.Metrics of one elector. Labels are on all of its metrics. A program with several
// electors gives each a label of its own with a value from a set that it knows beforehand; a program with one needs none.
func New(labels prometheus.Labels) *Collector {
	c := &Collector{
		leading: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "leading", ConstLabels: labels,
			Help: "1 while the elector leads, else 0.",
		}),
		terms: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "terms_total", ConstLabels: labels,
			Help: "Terms that the elector has acquired.",
		}),
		losses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "losses_total", ConstLabels: labels,
			Help: "Terms that were lost, by reason: Expired (no renewal was confirmed in time), Taken (the lease shows another term), Released (somebody else emptied the holder) or Deleted (the FencedLease is gone).",
		}, []string{"reason"}),
		gaps: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "renew_gap_seconds", ConstLabels: labels,
			Help:    "Time between the sending of two confirmed renewals. Choose the lease duration well above what is seen here.",
			Buckets: []float64{.1, .25, .5, 1, 2, 3, 5, 7.5, 10, 15, 30, 60, 120, 300, 900},
		}),
		acquisition: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "acquisition_seconds", ConstLabels: labels,
			Help:    "Time from when the elector saw the lease free, released or not renewed for its duration, until it had acquired it.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
	}
	for _, reason := range leader.LossReasons() {
		c.losses.WithLabelValues(string(reason)) // so that the first loss is a change from 0
	}
	return c
}

func (c *Collector) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.leading, c.terms, c.losses, c.gaps, c.acquisition}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, collector := range c.collectors() {
		collector.Describe(descriptions)
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	for _, collector := range c.collectors() {
		collector.Collect(metrics)
	}
}

// Leading implements leader.Metrics.
func (c *Collector) Leading(leads bool) {
	if leads {
		c.leading.Set(1)
		return
	}
	c.leading.Set(0)
}

// Acquired implements leader.Metrics.
func (c *Collector) Acquired(vacancy time.Duration) {
	c.terms.Inc()
	c.acquisition.Observe(vacancy.Seconds())
}

// Renewed implements leader.Metrics.
func (c *Collector) Renewed(gap time.Duration) { c.gaps.Observe(gap.Seconds()) }

// Lost implements leader.Metrics.
func (c *Collector) Lost(reason leader.LossReason) { c.losses.WithLabelValues(string(reason)).Inc() }
