// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencedlease/fencedlease/internal/fence"
)

const (
	otherLabel          = "other"
	outcomeAllow        = "allow"
	outcomeDeny         = "deny"
	outcomeUnavailable  = "unavailable"
	reasonUnguarded     = "NotGuarded"
	reasonCannotTell    = "CannotTell"
	reasonMalformedCall = "MalformedReview"
)

// Metrics are the numbers that the handler keeps. All labels come from closed sets.
type Metrics struct {
	reviews   *prometheus.CounterVec
	audited   *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	stamps    *prometheus.CounterVec
	stamping  prometheus.Histogram
	collected []prometheus.Collector
}

var _ prometheus.Collector = &Metrics{}

// NewMetrics returns metrics that are not registered yet.
func NewMetrics() *Metrics {
	m := &Metrics{
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencedlease_reviews_total",
			Help: "Reviews of guarded writes by outcome (allow, deny, unavailable), reason, operation, subresource and dry run.",
		}, []string{"outcome", "reason", "operation", "subresource", "dry_run"}),
		audited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencedlease_audit_refusals_total",
			Help: "Verdicts of leases in Audit that would have refused the write, by reason.",
		}, []string{"reason"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "fencedlease_review_duration_seconds",
			Help:    "Time to judge a guarded write, by outcome (allow, deny, unavailable).",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"outcome"}),
		stamps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencedlease_credential_stamps_total",
			Help: "Guarded writes made with a credential and without a token of their own, by what became of their mark " +
				"(stamped, unneeded, ended, unlisted, unguarded, failed, malformed).",
		}, []string{"result"}),
		stamping: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fencedlease_credential_stamp_duration_seconds",
			Help:    "Time to find out whether a guarded write made with a credential is to be marked.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
	}
	m.collected = []prometheus.Collector{m.reviews, m.audited, m.duration, m.stamps, m.stamping}
	// Rates need a zero to begin with: every reason of the commonest write is there before it first occurs.
	for _, reason := range fence.AllowReasons() {
		m.reviews.WithLabelValues(outcomeAllow, string(reason), "update", "main", strconv.FormatBool(false))
	}
	for _, reason := range fence.DenyReasons() {
		m.reviews.WithLabelValues(outcomeDeny, string(reason), "update", "main", strconv.FormatBool(false))
		m.audited.WithLabelValues(string(reason))
	}
	// Of what is rare and alerted on even the first must show, whatever the write was.
	for _, operation := range []string{"create", "update", "delete"} {
		for _, subresource := range []string{"main", fence.SubresourceStatus, fence.SubresourceScale} {
			m.reviews.WithLabelValues(outcomeUnavailable, reasonCannotTell, operation, subresource, strconv.FormatBool(false))
			m.reviews.WithLabelValues(outcomeAllow, string(fence.Overridden), operation, subresource, strconv.FormatBool(false))
			for _, reason := range []fence.Reason{fence.MarkTampered, fence.MalformedToken, fence.FutureToken} {
				m.reviews.WithLabelValues(outcomeDeny, string(reason), operation, subresource, strconv.FormatBool(false))
			}
		}
	}
	for _, outcome := range []string{outcomeAllow, outcomeDeny, outcomeUnavailable} {
		m.duration.WithLabelValues(outcome)
	}
	for _, result := range stampResults() {
		m.stamps.WithLabelValues(string(result))
	}
	return m
}

// LabelSets returns the values that each label of each metric can have.
func (*Metrics) LabelSets() map[string]map[string][]string {
	outcomes := []string{outcomeAllow, outcomeDeny, outcomeUnavailable}
	reasons := []string{reasonUnguarded, reasonCannotTell, reasonMalformedCall}
	for _, r := range slices.Concat(fence.AllowReasons(), fence.DenyReasons(), fence.UnavailableReasons(), []fence.Reason{fence.NotFresh}) {
		if !slices.Contains(reasons, string(r)) {
			reasons = append(reasons, string(r))
		}
	}
	denials := make([]string, 0, len(fence.DenyReasons()))
	for _, r := range fence.DenyReasons() {
		denials = append(denials, string(r))
	}
	stamps := make([]string, 0, len(stampResults()))
	for _, r := range stampResults() {
		stamps = append(stamps, string(r))
	}
	return map[string]map[string][]string{
		"fencedlease_reviews_total": {
			"outcome": outcomes, "reason": reasons, "operation": {"create", "update", "delete", otherLabel},
			"subresource": {"main", fence.SubresourceStatus, fence.SubresourceScale, otherLabel}, "dry_run": {"true", "false"},
		},
		"fencedlease_audit_refusals_total":    {"reason": denials},
		"fencedlease_review_duration_seconds": {"outcome": outcomes},
		"fencedlease_credential_stamps_total": {"result": stamps},
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collected {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collected {
		c.Collect(ch)
	}
}

func (m *Metrics) malformed() {
	m.reviews.WithLabelValues(outcomeUnavailable, reasonMalformedCall, otherLabel, otherLabel, strconv.FormatBool(false)).Inc()
}

func (m *Metrics) observe(r *review, verdicts []fence.Verdict, err error, took time.Duration) {
	outcome, reason := classify(verdicts, err)
	m.reviews.WithLabelValues(outcome, reason, r.operationLabel(), r.subresourceLabel(), strconv.FormatBool(r.dryRun)).Inc()
	m.duration.WithLabelValues(outcome).Observe(took.Seconds())
	for _, v := range verdicts {
		if v.Outcome == fence.Deny && v.Audited {
			m.audited.WithLabelValues(string(v.Reason)).Inc()
		}
	}
}

func (m *Metrics) stamped(result stampResult, took time.Duration) {
	m.stamps.WithLabelValues(string(result)).Inc()
	m.stamping.Observe(took.Seconds())
}

// classify returns the outcome of a review and the reason of the verdict that decided it.
func classify(verdicts []fence.Verdict, err error) (outcome, reason string) {
	if err != nil {
		return outcomeUnavailable, reasonCannotTell
	}
	if i := slices.IndexFunc(verdicts, refuses); i >= 0 {
		return outcomeDeny, string(verdicts[i].Reason)
	}
	if i := slices.IndexFunc(verdicts, unknown); i >= 0 {
		return outcomeUnavailable, string(verdicts[i].Reason)
	}
	if len(verdicts) == 0 {
		return outcomeAllow, reasonUnguarded
	}
	return outcomeAllow, string(verdicts[0].Reason)
}
