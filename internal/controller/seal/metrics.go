// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The results of seals and stamps, closed sets.
const (
	resultSealed     = "Sealed"
	resultFailed     = "Failed"
	resultSuperseded = "Superseded"

	stampWritten  = "Written"
	stampConflict = "Conflict"
	stampGone     = "Gone"

	actionReported = "Reported"
	actionDeleted  = "Deleted"
)

// Metrics are those of seals. They are filled on the elected replica only.
type Metrics struct {
	seals    *prometheus.CounterVec
	stamps   *prometheus.CounterVec
	duration prometheus.Histogram
	pending  prometheus.GaugeFunc
	lates    *prometheus.CounterVec

	pendingOf atomic.Pointer[func() float64]
}

var _ prometheus.Collector = &Metrics{}

// NewMetrics returns metrics that are not registered yet. All series begin at 0.
func NewMetrics() *Metrics {
	m := &Metrics{
		seals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencedlease_seals_total",
			Help: "Seals of terms, by result: sealed, failed (each attempt; it is made again) or superseded by a newer term.",
		}, []string{"result"}),
		stamps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencedlease_seal_stamps_total",
			Help: "Requests that stamp a guarded object, by result: written, a conflict with another write (made again), or the object was gone.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fencedlease_seal_duration_seconds",
			Help:    "Time from the controller's notice of an acquisition to the end of its seal, failed attempts included.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 16),
		}),
		lates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencedlease_late_creates_total",
			Help: "Guarded objects that were created under an ended term and appeared after the next one's seal had begun, by what was done.",
		}, []string{"action"}),
	}
	m.pending = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fencedlease_seal_pending_objects", Help: "Guarded objects that seals still have to look at, about.",
	}, func() float64 {
		if of := m.pendingOf.Load(); of != nil {
			return (*of)()
		}
		return 0
	})
	for _, result := range results() {
		m.seals.WithLabelValues(result)
	}
	for _, result := range stampResults() {
		m.stamps.WithLabelValues(result)
	}
	for _, action := range actions() {
		m.lates.WithLabelValues(action)
	}
	return m
}

func results() []string      { return []string{resultSealed, resultFailed, resultSuperseded} }
func stampResults() []string { return []string{stampWritten, stampConflict, stampGone} }
func actions() []string      { return []string{actionReported, actionDeleted} }

// LabelSets returns the values that each label of each metric can have.
func (*Metrics) LabelSets() map[string]map[string][]string {
	return map[string]map[string][]string{
		"fencedlease_seals_total":        {"result": results()},
		"fencedlease_seal_stamps_total":  {"result": stampResults()},
		"fencedlease_late_creates_total": {"action": actions()},
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(descs)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(metrics)
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.seals, m.stamps, m.duration, m.pending, m.lates}
}

func (m *Metrics) setPending(of func() float64) { m.pendingOf.Store(&of) }

func (m *Metrics) stamped(result string) { m.stamps.WithLabelValues(result).Inc() }

func (m *Metrics) finished(result string) { m.seals.WithLabelValues(result).Inc() }

func (m *Metrics) sealed(took time.Duration) {
	m.finished(resultSealed)
	m.duration.Observe(took.Seconds())
}

func (m *Metrics) late(deleted bool) {
	action := actionReported
	if deleted {
		action = actionDeleted
	}
	m.lates.WithLabelValues(action).Inc()
}
