// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// place is a row of the table.
type place struct {
	writers int
	kind    kind
}

// round holds what was measured in one round.
type round map[place]cellResult

// spread is the lowest and highest of some values, the middle one, and the two between which the middle half is.
type spread struct{ low, lower, middle, upper, high float64 }

// spreadOf returns the spread of at least one value.
func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	last := len(sorted) - 1
	// at returns the value at a share of the way from the lowest to the highest, between two values if need be.
	at := func(share float64) float64 {
		position := share * float64(last)
		below := int(position)
		above := min(below+1, last)
		return sorted[below] + (position-float64(below))*(sorted[above]-sorted[below])
	}
	return spread{sorted[0], at(0.25), at(0.5), at(0.75), sorted[last]}
}

func (s spread) String() string {
	return fmt.Sprintf("**%.2f** · %.2f–%.2f · %.2f–%.2f", s.middle, s.lower, s.upper, s.low, s.high)
}

func p50(r cellResult) float64       { return float64(r.p50) / float64(time.Millisecond) }
func perSecond(r cellResult) float64 { return r.perSecond }

// values returns the spread of a value over all rounds.
func values(rounds []round, at place, value func(cellResult) float64) spread {
	all := make([]float64, len(rounds))
	for i, r := range rounds {
		all[i] = value(r[at])
	}
	return spreadOf(all)
}

// ratio returns the spread of the ratios to another kind of admission, each of two results of one round.
func ratio(rounds []round, at place, to kind, value func(cellResult) float64) string {
	if at.kind == to {
		return "1"
	}
	all := make([]float64, len(rounds))
	for i, r := range rounds {
		all[i] = value(r[at]) / value(r[place{at.writers, to}])
	}
	return spreadOf(all).String()
}

// writeTables prints the results as Markdown.
func writeTables(out io.Writer, rounds []round) error {
	var text strings.Builder
	fmt.Fprintf(&text, "Ratios: median · middle half · lowest to highest of %d rounds.\n\n", len(rounds))
	text.WriteString("| writers | admission | p50 to no admission | p50 to no-op webhook | throughput to no admission | " +
		"throughput to no-op webhook | p50, ms | writes/s |\n|---|---|---|---|---|---|---|---|\n")
	for _, writers := range writerCounts() {
		for _, k := range kinds() {
			at := place{writers, k}
			fmt.Fprintf(&text, "| %d | %s | %s | %s | %s | %s | %.1f | %.0f |\n", writers, k,
				ratio(rounds, at, plain, p50), ratio(rounds, at, noop, p50),
				ratio(rounds, at, plain, perSecond), ratio(rounds, at, noop, perSecond),
				values(rounds, at, p50).middle, values(rounds, at, perSecond).middle)
		}
	}
	text.WriteString("\nWhat the webhooks did, over all rounds:\n\n" +
		"| writers | webhook | writes | reviews per write | reviews per read of the lease | processor time of the webhook per write |\n|---|---|---|---|---|---|\n")
	for _, writers := range writerCounts() {
		for _, k := range []kind{noop, fenced, request, sealed} {
			var total cellResult
			for _, r := range rounds {
				result := r[place{writers, k}]
				total.writes += result.writes
				total.reviews += result.reviews
				total.reads += result.reads
				total.processor += result.processor
			}
			shared := "none"
			if total.reads > 0 {
				shared = fmt.Sprintf("%.2f (%.0f on %.0f)", total.reviews/total.reads, total.reviews, total.reads)
			}
			fmt.Fprintf(&text, "| %d | %s | %.0f | %.3f | %s | %v |\n", writers, k, total.writes, total.reviews/total.writes, shared,
				(total.processor / time.Duration(max(total.writes, 1))).Round(time.Microsecond))
		}
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("write tables: %w", err)
	}
	return nil
}
