// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseview

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the label result.
const (
	resultOK        = "ok"
	resultNotFound  = "not_found"
	resultError     = "error"
	resultAbandoned = "abandoned"
)

// Metrics are the metrics of a View. They are a prometheus.Collector, which the owner of the view registers.
type Metrics struct {
	reads    *prometheus.CounterVec
	requests *prometheus.CounterVec
	duration prometheus.Histogram
	relists  *prometheus.CounterVec
}

var _ prometheus.Collector = (*Metrics)(nil)

// NewMetrics returns metrics with every series at zero.
func NewMetrics() *Metrics {
	m := &Metrics{
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencedlease_lease_reads_total",
			Help: "Linearizable reads of FencedLeases, by result.",
		}, []string{"result"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencedlease_lease_read_requests_total",
			Help: "Requests for a linearizable read of a FencedLease, by the result that they got. Divided by " +
				"fencedlease_lease_reads_total: how many requests shared a read.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fencedlease_lease_read_duration_seconds",
			Help:    "Duration of linearizable reads of FencedLeases.",
			Buckets: []float64{.0005, .001, .002, .003, .005, .0075, .01, .025, .05, .1, .25, .5, 1, 2, 5},
		}),
		relists: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencedlease_lease_view_replacements_total",
			Help: "Replacements of the watched copy of FencedLeases, by reason: the store went back, the copy lagged " +
				"behind a read, or it heard nothing for too long.",
		}, []string{"reason"}),
	}
	for _, r := range []string{resultOK, resultNotFound, resultError} {
		m.reads.WithLabelValues(r)
		m.requests.WithLabelValues(r)
	}
	m.requests.WithLabelValues(resultAbandoned)
	for _, r := range []string{relistBehind, relistLagging, relistSilent} {
		m.relists.WithLabelValues(r)
	}
	return m
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.reads, m.requests, m.duration, m.relists}
}

// LabelSets returns the values that each label of each metric can have.
func (*Metrics) LabelSets() map[string]map[string][]string {
	return map[string]map[string][]string{
		"fencedlease_lease_reads_total":             {"result": {resultOK, resultNotFound, resultError}},
		"fencedlease_lease_read_requests_total":     {"result": {resultOK, resultNotFound, resultError, resultAbandoned}},
		"fencedlease_lease_view_replacements_total": {"reason": {relistBehind, relistLagging, relistSilent}},
	}
}

// Describe sends the descriptors of the metrics.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
}

// Collect sends the metrics.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
}

// read counts one read of the server.
func (m *Metrics) read(err error, took time.Duration) {
	m.reads.WithLabelValues(result(err)).Inc()
	m.duration.Observe(took.Seconds())
}

// answered counts one request for a read.
func (m *Metrics) answered(err error) { m.requests.WithLabelValues(result(err)).Inc() }

// relisted counts one replacement of the copy.
func (m *Metrics) relisted(reason string) { m.relists.WithLabelValues(reason).Inc() }
