// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fencedlease/fencedlease/pkg/token"
)

func newIdleEvidence() *Evidence {
	return NewEvidence(nil, nil, clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
}

func sighting(name string, generation int64, mark bool) Sighting {
	return Sighting{Lease: types.NamespacedName{Namespace: "reports", Name: name}, Generation: generation, Mark: mark}
}

func TestEvidenceKeepsTheHighest(t *testing.T) {
	const absurd = token.MaxPlausibleGeneration + 1
	for name, c := range map[string]struct{ seen, want []Sighting }{
		"the highest of a lease": {
			seen: []Sighting{sighting("a", 5, false), sighting("a", 7, true), sighting("a", 6, true)},
			want: []Sighting{sighting("a", 7, true)},
		},
		"each lease": {
			seen: []Sighting{sighting("a", 5, false), sighting("b", 4, false)},
			want: []Sighting{sighting("a", 5, false), sighting("b", 4, false)},
		},
		"no implausible token":      {seen: []Sighting{sighting("a", absurd, false)}},
		"the highest plausible one": {seen: []Sighting{sighting("a", absurd-1, false)}, want: []Sighting{sighting("a", absurd-1, false)}},
		"an implausible mark beside what it must not hide": {
			seen: []Sighting{sighting("a", 5, false), sighting("a", absurd, true), sighting("a", 6, false)},
			want: []Sighting{sighting("a", 6, false), sighting("a", absurd, true)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newIdleEvidence()
			for _, s := range c.seen {
				e.GenerationAhead(s)
			}
			want := map[evidenceKey]Sighting{}
			for _, s := range c.want {
				want[evidenceKey{s.Lease, s.Generation >= absurd}] = s
			}
			if diff := cmp.Diff(want, e.take(), cmp.AllowUnexported(evidenceKey{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if left := e.take(); len(left) > 0 {
				t.Errorf("taken twice: %v", left)
			}
		})
	}
}

func TestEvidenceIsBounded(t *testing.T) {
	e := newIdleEvidence()
	for i := range 2 * maxEvidence {
		e.GenerationAhead(sighting(strconv.Itoa(i), 5, false))
	}
	// What waits already may still rise.
	e.GenerationAhead(sighting("0", 9, false))
	taken := e.take()
	if len(taken) != maxEvidence {
		t.Errorf("want %d to wait, got %d", maxEvidence, len(taken))
	}
	if got := taken[evidenceKey{lease: types.NamespacedName{Namespace: "reports", Name: "0"}}].Generation; got != 9 {
		t.Errorf("want the highest generation of the first, got %d", got)
	}
}

func TestEvidenceEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newIdleEvidence()
		if e.NeedLeaderElection() {
			t.Error("want it on every replica")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Start(ctx) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it ended by itself: %v", err)
		default:
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("want no error, got %v", err)
		}
	})
}
