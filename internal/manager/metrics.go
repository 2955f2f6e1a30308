// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/fencedlease/fencedlease/internal/cert"
	"github.com/fencedlease/fencedlease/internal/controller"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
	"github.com/fencedlease/fencedlease/internal/leaseview"
	"github.com/fencedlease/fencedlease/internal/webhook/fencing"
)

// Collector is a collector whose labels have closed sets of values. Everything that a manager registers is one.
type Collector interface {
	prometheus.Collector
	// LabelSets returns the values that each label of each metric can have.
	LabelSets() map[string]map[string][]string
}

// measures are all metrics of a manager but those of its certificates, which belong to their authority.
type measures struct {
	view       *leaseview.Metrics
	holders    *leaseview.Holders
	reviews    *fencing.Metrics
	controller *controller.Metrics
	seals      *seal.Metrics
}

func newMeasures(c clock.PassiveClock) measures {
	return measures{
		view: leaseview.NewMetrics(), holders: leaseview.NewHolders(c), reviews: fencing.NewMetrics(), controller: controller.NewMetrics(),
		seals: seal.NewMetrics(),
	}
}

func (m measures) collectors(certificates Collector) []Collector {
	return []Collector{m.view, m.holders, m.reviews, m.controller, m.seals, certificates}
}

// Collectors returns what a manager registers, without a manager behind it, for the reference of the metrics.
func Collectors() []Collector { return newMeasures(clock.RealClock{}).collectors(cert.NewMetrics()) }
