// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// The states of leases, a closed set.
const (
	stateHeld      = "Held"
	stateReleased  = "Released"
	stateNeverHeld = "NeverHeld"
)

// Metrics are the controller's. They are filled on the elected replica only.
type Metrics struct {
	handovers     prometheus.Counter
	floorRaises   *prometheus.CounterVec
	applies       *prometheus.CounterVec
	probes        *prometheus.CounterVec
	skippedGuards *prometheus.GaugeVec
	leases        *prometheus.Desc
	conditions    *prometheus.Desc

	mu sync.Mutex
	// seen is what each lease was when it was last looked at.
	seen map[types.NamespacedName]seenLease
}

type seenLease struct {
	uid        types.UID
	generation int64
	state      string
	// conditions are the statuses of conditions, by type, as they were last written.
	conditions map[string]metav1.ConditionStatus
}

func conditionTypes() []string {
	return []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionHeld, v1alpha1.ConditionSealed, v1alpha1.ConditionLateCreate, v1alpha1.ConditionGenerationBehind,
		v1alpha1.ConditionImplausibleMark,
	}
}

func conditionStatuses() []metav1.ConditionStatus {
	return []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse}
}

var _ prometheus.Collector = &Metrics{}

// NewMetrics returns metrics that are not registered yet. All series of closed sets begin at 0.
func NewMetrics() *Metrics {
	m := &Metrics{
		handovers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fencedlease_handovers_total", Help: "Changes of the generation of FencedLeases that were seen.",
		}),
		floorRaises: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencedlease_generation_floor_raises_total",
			Help: "Raises of generationFloor above a generation that was not the lease's, by what showed it.",
		}, []string{"evidence"}),
		applies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencedlease_registration_applies_total", Help: "Writes of objects of the registration, by kind.",
		}, []string{"kind"}),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencedlease_registration_probes_total", Help: "Probes of the registration through one API server, by outcome.",
		}, []string{"outcome"}),
		skippedGuards: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fencedlease_guards_skipped", Help: "Resources of guards that are not installed as they are written, by reason.",
		}, []string{"reason"}),
		leases: prometheus.NewDesc("fencedlease_leases", "FencedLeases by state.", []string{"state"}, nil),
		conditions: prometheus.NewDesc("fencedlease_lease_conditions", "FencedLeases by condition and its status (true, false).",
			[]string{"condition", "status"}, nil),
		seen: map[types.NamespacedName]seenLease{},
	}
	for _, e := range Evidences() {
		m.floorRaises.WithLabelValues(string(e))
	}
	for _, kind := range registrationKinds() {
		m.applies.WithLabelValues(kind)
	}
	for _, o := range probeOutcomes() {
		m.probes.WithLabelValues(string(o))
	}
	m.skipped(nil)
	return m
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(descs)
	}
	descs <- m.leases
	descs <- m.conditions
}

// LabelSets returns the values that each label of each metric can have.
func (*Metrics) LabelSets() map[string]map[string][]string {
	return map[string]map[string][]string{
		"fencedlease_generation_floor_raises_total": {"evidence": texts(Evidences())},
		"fencedlease_registration_applies_total":    {"kind": registrationKinds()},
		"fencedlease_registration_probes_total":     {"outcome": texts(probeOutcomes())},
		"fencedlease_guards_skipped":                {"reason": texts(ProblemReasons())},
		"fencedlease_leases":                        {"state": {stateHeld, stateReleased, stateNeverHeld}},
		"fencedlease_lease_conditions":              {"condition": conditionTypes(), "status": {"true", "false"}},
	}
}

func probeOutcomes() []ProbeOutcome {
	return []ProbeOutcome{ProbeInForce, ProbeNotYet, ProbeUnreachable, ProbeFailed}
}

func texts[T ~string](values []T) []string {
	out := make([]string, 0, len(values))
	for _, v := range values {
		out = append(out, string(v))
	}
	return out
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(metrics)
	}
	counts := map[string]int{stateHeld: 0, stateReleased: 0, stateNeverHeld: 0}
	type condition struct {
		name   string
		status metav1.ConditionStatus
	}
	conditions := map[condition]int{}
	m.mu.Lock()
	for _, lease := range m.seen {
		counts[lease.state]++
		for name, status := range lease.conditions {
			conditions[condition{name, status}]++
		}
	}
	m.mu.Unlock()
	for state, n := range counts {
		metrics <- prometheus.MustNewConstMetric(m.leases, prometheus.GaugeValue, float64(n), state)
	}
	for _, name := range conditionTypes() {
		for _, status := range conditionStatuses() {
			metrics <- prometheus.MustNewConstMetric(m.conditions, prometheus.GaugeValue, float64(conditions[condition{name, status}]),
				name, strings.ToLower(string(status)))
		}
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.handovers, m.floorRaises, m.applies, m.probes, m.skippedGuards}
}

// observed takes a lease into account that was read.
func (m *Metrics) observed(lease *v1alpha1.FencedLease) {
	key := types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}
	now := seenLease{
		uid: lease.UID, generation: ptr.Deref(lease.Status.Generation, 0), state: stateOf(lease),
		conditions: make(map[string]metav1.ConditionStatus, len(lease.Status.Conditions)),
	}
	for _, c := range lease.Status.Conditions {
		now.conditions[c.Type] = c.Status
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before, known := m.seen[key]; known && before.uid == now.uid && now.generation > before.generation {
		m.handovers.Inc()
	}
	m.seen[key] = now
}

func stateOf(lease *v1alpha1.FencedLease) string {
	switch {
	case ptr.Deref(lease.Status.Generation, 0) == 0:
		return stateNeverHeld
	case ptr.Deref(lease.Status.HolderIdentity, "") == "":
		return stateReleased
	default:
		return stateHeld
	}
}

// gone forgets a lease.
func (m *Metrics) gone(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, key)
}

func (m *Metrics) raised(evidence Evidence) { m.floorRaises.WithLabelValues(string(evidence)).Inc() }

func (m *Metrics) applied(kind string) { m.applies.WithLabelValues(kind).Inc() }

func (m *Metrics) probed(report ProbeReport) {
	for _, r := range report.Results {
		m.probes.WithLabelValues(string(r.Outcome)).Inc()
	}
}

// skipped replaces the numbers of problems.
func (m *Metrics) skipped(problems map[types.UID][]Problem) {
	counts := map[ProblemReason]int{}
	for _, list := range problems {
		for _, p := range list {
			counts[p.Reason]++
		}
	}
	for _, reason := range ProblemReasons() {
		m.skippedGuards.WithLabelValues(string(reason)).Set(float64(counts[reason]))
	}
}
