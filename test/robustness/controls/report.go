// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controls

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencedlease/fencedlease/test/robustness/pause"
)

// Violations counts the cells in which a write lands that the product refuses: it arrived, or would have been committed,
// after the other leader's.
type Violations struct {
	cells, broken int
	byClass       map[string][2]int
	byStep        map[pause.Step][2]int
}

// Add counts the results of a control.
func (v *Violations) Add(results []pause.Result) {
	if v.byClass == nil {
		v.byClass, v.byStep = map[string][2]int{}, map[pause.Step][2]int{}
	}
	for _, r := range results {
		if r.Cell.Why() != pause.Fenced {
			continue
		}
		broken := 0
		if r.Got.Answer == pause.Committed {
			broken = 1
		}
		v.cells, v.broken = v.cells+1, v.broken+broken
		c, s := v.byClass[class(r.Cell)], v.byStep[r.Cell.Step]
		v.byClass[class(r.Cell)] = [2]int{c[0] + broken, c[1] + 1}
		v.byStep[r.Cell.Step] = [2]int{s[0] + broken, s[1] + 1}
	}
}

// Broken returns the number of broken cells.
func (v *Violations) Broken() int { return v.broken }

// String tells the numbers.
func (v *Violations) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "lets a stale write land in %d of the %d cells in which FencedLease refuses it:", v.broken, v.cells)
	for _, c := range slices.Sorted(maps.Keys(v.byClass)) {
		fmt.Fprintf(&out, " %s %d of %d;", c, v.byClass[c][0], v.byClass[c][1])
	}
	for _, s := range pause.Steps() {
		if n, counted := v.byStep[s]; counted {
			fmt.Fprintf(&out, " %s %d of %d;", s, n[0], n[1])
		}
	}
	return strings.TrimSuffix(out.String(), ";")
}
