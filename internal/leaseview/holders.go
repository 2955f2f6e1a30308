// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseview

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// Holders measures, from what this replica sees and when it sees it, how holders behave: the pauses between their
// renewals, and how long a lease and its objects go without a leader at a handover. Lease durations are chosen from that.
// The times are those of the injected clock at the arrival of the watch events, never those that holders write. It is a
// prometheus.Collector, which its owner registers.
type Holders struct {
	clock clock.PassiveClock

	renewalGap prometheus.Histogram
	vacancy    *prometheus.HistogramVec
	firstWrite prometheus.Histogram
	overdue    *prometheus.Desc

	mu     sync.Mutex
	leases map[types.NamespacedName]*holding
}

// holding is what was last seen of a lease's holder.
type holding struct {
	uid        types.UID
	generation int64
	term       string
	released   bool
	renewTime  time.Time
	// sign is when the last renewal, acquisition or release arrived. It is zero after a list, which does not tell when
	// its content came about.
	sign time.Time
	// duration is how long a silent holder keeps the lease, and heard when this replica last learned anything of it: its last
	// sign, or the list that first showed it.
	duration time.Duration
	heard    time.Time
	// vacant is the last sign of the term before this one, while no write under this one was admitted; else zero.
	vacant time.Time
}

var _ prometheus.Collector = (*Holders)(nil)

// Values of the label that says how a term ended.
const (
	endReleased = "released"
	endSilent   = "silent"
)

// NewHolders returns a Holders with every series at zero.
func NewHolders(c clock.PassiveClock) *Holders {
	h := &Holders{
		clock: c,
		renewalGap: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fencedlease_renewal_gap_ratio",
			Help: "Pauses between two renewals of one term as this replica saw them, as a fraction of the lease duration: " +
				"a holder loses its lease at 1. Renewals after that count as well.",
			Buckets: []float64{.1, .2, .3, .4, .5, .6, .7, .8, .9, 1, 1.5, 2, 5},
		}),
		vacancy: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fencedlease_handover_vacancy_seconds",
			Help: "Time from the last sign of life of a term (its last renewal, or its release) to the next acquisition as " +
				"this replica saw them, by how the term ended (released, silent).",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 20, 30, 60, 120, 300},
		}, []string{"end"}),
		firstWrite: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fencedlease_handover_first_write_seconds",
			Help: "Time from the last sign of life of a term to the first guarded write under the next one that this replica " +
				"admitted. Every replica measures its own first write, so read the lowest of all.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 20, 30, 60, 120, 300},
		}),
		overdue: prometheus.NewDesc("fencedlease_leases_overdue",
			"FencedLeases with a recorded holder that this replica has not seen renew for longer than the lease duration.", nil, nil),
		leases: map[types.NamespacedName]*holding{},
	}
	h.vacancy.WithLabelValues(endReleased)
	h.vacancy.WithLabelValues(endSilent)
	return h
}

// Describe sends the descriptors of the metrics.
func (h *Holders) Describe(ch chan<- *prometheus.Desc) {
	h.renewalGap.Describe(ch)
	h.vacancy.Describe(ch)
	h.firstWrite.Describe(ch)
	ch <- h.overdue
}

// Collect sends the metrics.
func (h *Holders) Collect(ch chan<- prometheus.Metric) {
	h.renewalGap.Collect(ch)
	h.vacancy.Collect(ch)
	h.firstWrite.Collect(ch)
	ch <- prometheus.MustNewConstMetric(h.overdue, prometheus.GaugeValue, float64(h.countOverdue()))
}

// LabelSets returns the values that each label of each metric can have.
func (*Holders) LabelSets() map[string]map[string][]string {
	return map[string]map[string][]string{
		"fencedlease_handover_vacancy_seconds": {"end": {endReleased, endSilent}},
	}
}

func (h *Holders) countOverdue() int {
	now := h.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	overdue := 0
	for _, is := range h.leases {
		if !is.released && is.duration > 0 && now.Sub(is.heard) > is.duration {
			overdue++
		}
	}
	return overdue
}

// Admitted notes that a write under a generation of the lease was admitted.
func (h *Holders) Admitted(key types.NamespacedName, generation int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.leases[key]
	if now == nil || now.generation != generation || now.vacant.IsZero() {
		return
	}
	h.firstWrite.Observe(h.clock.Since(now.vacant).Seconds())
	now.vacant = time.Time{}
}

// changed takes in a watch event.
func (h *Holders) changed(lease *v1alpha1.FencedLease) {
	arrived := h.clock.Now()
	is := holdingOf(lease)
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.leases[keyOf(lease)]
	h.leases[keyOf(lease)] = is
	is.heard = arrived
	if was == nil || was.uid != is.uid || is.generation < was.generation {
		is.sign = arrived
		return
	}
	is.sign, is.vacant = was.sign, was.vacant
	if was.same(is) {
		is.heard = was.heard
	}
	switch {
	case is.term != was.term:
		is.sign, is.vacant = arrived, time.Time{}
		if was.term == "" || was.sign.IsZero() {
			return // nobody held it before, or it is not known since when
		}
		is.vacant = was.sign
		end := endSilent
		if was.released {
			end = endReleased
		}
		h.vacancy.WithLabelValues(end).Observe(arrived.Sub(was.sign).Seconds())
	case is.released != was.released:
		is.sign = arrived
	case !is.renewTime.Equal(was.renewTime):
		is.sign = arrived
		if !was.sign.IsZero() && lease.Spec.LeaseDurationSeconds > 0 {
			h.renewalGap.Observe(arrived.Sub(was.sign).Seconds() / float64(lease.Spec.LeaseDurationSeconds))
		}
	}
}

// listed takes in a list, which tells what is there, and not since when.
func (h *Holders) listed(leases []*v1alpha1.FencedLease) {
	arrived := h.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.leases
	h.leases = make(map[types.NamespacedName]*holding, len(leases))
	for _, lease := range leases {
		is := holdingOf(lease)
		is.heard = arrived
		// What is as it was seen last has a known time still.
		if was := before[keyOf(lease)]; was != nil && was.same(is) {
			is.sign, is.vacant, is.heard = was.sign, was.vacant, was.heard
		}
		h.leases[keyOf(lease)] = is
	}
}

// gone forgets a lease.
func (h *Holders) gone(key types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.leases, key)
}

// same reports whether nothing has happened between two sights of a lease.
func (h *holding) same(other *holding) bool {
	return h.uid == other.uid && h.generation == other.generation && h.term == other.term &&
		h.released == other.released && h.renewTime.Equal(other.renewTime)
}

func holdingOf(lease *v1alpha1.FencedLease) *holding {
	status := &lease.Status
	is := &holding{
		uid:        lease.UID,
		generation: ptr.Deref(status.Generation, 0),
		term:       ptr.Deref(status.Term, ""),
		released:   ptr.Deref(status.HolderIdentity, "") == "",
		duration:   time.Duration(lease.Spec.LeaseDurationSeconds) * time.Second,
	}
	if status.RenewTime != nil {
		is.renewTime = status.RenewTime.Time
	}
	return is
}
