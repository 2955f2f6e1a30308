// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/test/robustness/history"
)

func choices(seed uint64, term, worker int) []choice {
	chooser := newChooser(Config{Seed: seed, Number: 3, Kind: Elector, Lease: history.Lease{Objects: []string{"a", "b", "c"}}}, term, worker)
	all := make([]choice, 1000)
	for i := range all {
		all[i] = chooser.next()
	}
	return all
}

func TestASeedRepeatsTheChoices(t *testing.T) {
	first := choices(7, 1, 0)
	if diff := cmp.Diff(first, choices(7, 1, 0), cmp.AllowUnexported(choice{})); diff != "" {
		t.Errorf("the same seed chooses differently:\n%s", diff)
	}
	for name, other := range map[string][]choice{"seed": choices(8, 1, 0), "term": choices(7, 2, 0), "worker": choices(7, 1, 1)} {
		if cmp.Equal(first, other, cmp.AllowUnexported(choice{})) {
			t.Errorf("another %s chooses the same", name)
		}
	}
	verbs, carriers := map[history.Verb]bool{}, map[history.Carrier]bool{}
	for _, c := range first {
		verbs[c.verb], carriers[c.carrier] = true, true
	}
	if want := len(history.Writes()) + 2; len(verbs) != want {
		t.Errorf("want %d verbs, got %v", want, verbs)
	}
	if want := len(history.Carriers()); len(carriers) != want {
		t.Errorf("want %d carriers, got %v", want, carriers)
	}
}
