// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cert

import "github.com/prometheus/client_golang/prometheus"

// Values of the labels cause and kind.
const (
	causeDeleted  = "deleted"
	causeDamaged  = "damaged"
	causeReplaced = "replaced"

	kindCA   = "ca"
	kindLeaf = "leaf"
)

// Metrics are what an Authority shows of itself. An Authority registers them with their values; alone they describe.
type Metrics struct {
	expiry   *prometheus.Desc
	revision *prometheus.Desc
	restores *prometheus.CounterVec
}

// NewMetrics returns metrics without the values that come from a state.
func NewMetrics() *Metrics {
	m := &Metrics{
		expiry: prometheus.NewDesc("fencedlease_certificate_expiry_seconds",
			"Time until the CA that signs (kind ca) or the serving certificate of this replica (kind leaf) expires, negative when it has.",
			[]string{"kind"}, nil),
		revision: prometheus.NewDesc("fencedlease_certificate_state_revision",
			"Revision of the newest CA state that this replica knows. Replicas that have different ones are about to follow a step of a rotation.",
			nil, nil),
		restores: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencedlease_certificate_restores_total",
			Help: "Times that this replica wrote the Secret with the CA state anew from memory, by cause: it was deleted, damaged, " +
				"or replaced by an older or foreign state.",
		}, []string{"cause"}),
	}
	for _, cause := range []string{causeDeleted, causeDamaged, causeReplaced} {
		m.restores.WithLabelValues(cause)
	}
	return m
}

// Describe sends the descriptors of the metrics.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.expiry
	ch <- m.revision
	m.restores.Describe(ch)
}

// Collect sends the metrics that do not come from a state.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) { m.restores.Collect(ch) }

// LabelSets returns the values that each label of each metric can have.
func (*Metrics) LabelSets() map[string]map[string][]string {
	return map[string]map[string][]string{
		"fencedlease_certificate_expiry_seconds": {"kind": {kindCA, kindLeaf}},
		"fencedlease_certificate_restores_total": {"cause": {causeDeleted, causeDamaged, causeReplaced}},
	}
}

var _ prometheus.Collector = (*Authority)(nil)

// Describe sends the descriptors of the metrics.
func (a *Authority) Describe(ch chan<- *prometheus.Desc) { a.metrics.Describe(ch) }

// LabelSets returns the values that each label of each metric can have.
func (a *Authority) LabelSets() map[string]map[string][]string { return a.metrics.LabelSets() }

// Collect sends the metrics. Of what there is not yet, it sends none.
func (a *Authority) Collect(ch chan<- prometheus.Metric) {
	now := a.opts.Clock.Now()
	if s := a.known.Load(); s != nil {
		ch <- prometheus.MustNewConstMetric(a.metrics.expiry, prometheus.GaugeValue, s.signing.cert.NotAfter.Sub(now).Seconds(), kindCA)
		ch <- prometheus.MustNewConstMetric(a.metrics.revision, prometheus.GaugeValue, float64(s.revision))
	}
	if leaf := a.served.Load(); leaf != nil {
		ch <- prometheus.MustNewConstMetric(a.metrics.expiry, prometheus.GaugeValue, leaf.tls.Leaf.NotAfter.Sub(now).Seconds(), kindLeaf)
	}
	a.metrics.Collect(ch)
}
