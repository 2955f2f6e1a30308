// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Report counts the ends of cells.
type Report struct {
	cells      int
	impossible map[string]int
	counts     map[Strategy]map[Step]map[string]int
}

// NewReport returns an empty report of a table with so many impossible cells.
func NewReport(impossible map[string]int) *Report {
	return &Report{impossible: impossible, counts: map[Strategy]map[Step]map[string]int{}}
}

// Add counts results.
func (r *Report) Add(results []Result) {
	for _, result := range results {
		c := result.Cell
		if r.counts[c.Strategy] == nil {
			r.counts[c.Strategy] = map[Step]map[string]int{}
		}
		if r.counts[c.Strategy][c.Step] == nil {
			r.counts[c.Strategy][c.Step] = map[string]int{}
		}
		end := string(result.Got.Answer)
		if why := c.Why(); why != Fenced && result.Got.Answer == Committed {
			end = string(why)
		}
		r.counts[c.Strategy][c.Step][end]++
		r.cells++
	}
}

// String is the table as text.
func (r *Report) String() string {
	var out strings.Builder
	for _, strategy := range slices.Sorted(maps.Keys(r.counts)) {
		fmt.Fprintf(&out, "%s\n", strategy)
		for _, step := range Steps() {
			ends := r.counts[strategy][step]
			parts := make([]string, 0, len(ends))
			for _, end := range slices.Sorted(maps.Keys(ends)) {
				parts = append(parts, fmt.Sprintf("%d %s", ends[end], end))
			}
			fmt.Fprintf(&out, "  %-27s %s\n", step, strings.Join(parts, "; "))
		}
	}
	fmt.Fprintf(&out, "%d cells\n", r.cells)
	for _, reason := range slices.Sorted(maps.Keys(r.impossible)) {
		fmt.Fprintf(&out, "%d cells do not exist: %s\n", r.impossible[reason], reason)
	}
	return out.String()
}
