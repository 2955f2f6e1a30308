// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseview

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// held is a lease of ten seconds as a holder wrote it at a second of its own clock.
func held(generation int64, term string, second int64) *v1alpha1.FencedLease {
	return makeLease(keyA, 100, func(l *v1alpha1.FencedLease) {
		l.Spec.LeaseDurationSeconds = 10
		l.Status.Generation, l.Status.Term, l.Status.HolderIdentity = ptr.To(generation), ptr.To(term), ptr.To("holder")
		l.Status.RenewTime = ptr.To(metav1.NewMicroTime(time.Unix(second, 0)))
	})
}

func releasedBy(lease *v1alpha1.FencedLease) *v1alpha1.FencedLease {
	lease.Status.HolderIdentity = ptr.To("")
	return lease
}

// measured returns count and sum of each histogram with samples.
func measured(t *testing.T, h *Holders) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(h); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetHistogram().GetSampleCount(); n > 0 {
				name := strings.TrimPrefix(f.GetName(), "fencedlease_")
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				found = append(found, fmt.Sprintf("%s: %d, %.2f", name, n, m.GetHistogram().GetSampleSum()))
			}
		}
	}
	return found
}

func TestHoldersMeasureWhatTheyHaveSeen(t *testing.T) {
	t.Parallel()
	// The steps of a case are a second and a half apart.
	const step = 1500 * time.Millisecond
	see := func(lease *v1alpha1.FencedLease) func(*Holders) { return func(h *Holders) { h.changed(lease) } }
	list := func(leases ...*v1alpha1.FencedLease) func(*Holders) { return func(h *Holders) { h.listed(leases) } }
	admit := func(generation int64) func(*Holders) { return func(h *Holders) { h.Admitted(keyA, generation) } }
	other := func(lease *v1alpha1.FencedLease) *v1alpha1.FencedLease { lease.UID = "other"; return lease }

	for name, test := range map[string]struct {
		steps []func(*Holders)
		want  []string
	}{
		"a pause between two renewals, as a share of the duration": {
			[]func(*Holders){see(held(1, "aaaaaaaa", 1)), see(held(1, "aaaaaaaa", 2)), see(held(1, "aaaaaaaa", 3))},
			[]string{"renewal_gap_ratio: 2, 0.30"},
		},
		"a change that is no renewal does not end a pause": {
			[]func(*Holders){see(held(1, "aaaaaaaa", 1)), see(held(1, "aaaaaaaa", 1)), see(held(1, "aaaaaaaa", 2))},
			[]string{"renewal_gap_ratio: 1, 0.30"},
		},
		"the clock of the holder does not matter": {
			[]func(*Holders){see(held(1, "aaaaaaaa", 500)), see(held(1, "aaaaaaaa", 1))},
			[]string{"renewal_gap_ratio: 1, 0.15"},
		},
		"a holder fell silent": {
			[]func(*Holders){see(held(1, "aaaaaaaa", 1)), see(held(2, "bbbbbbbb", 9)), admit(2)},
			[]string{"handover_first_write_seconds: 1, 3.00", "handover_vacancy_seconds silent: 1, 1.50"},
		},
		"a holder has released": {
			[]func(*Holders){see(held(1, "aaaaaaaa", 1)), see(releasedBy(held(1, "aaaaaaaa", 1))), see(held(2, "bbbbbbbb", 2)), admit(2)},
			[]string{"handover_first_write_seconds: 1, 3.00", "handover_vacancy_seconds released: 1, 1.50"},
		},
		"only the first write counts": {
			[]func(*Holders){see(held(1, "aaaaaaaa", 1)), see(held(2, "bbbbbbbb", 9)), admit(2), admit(2)},
			[]string{"handover_first_write_seconds: 1, 3.00", "handover_vacancy_seconds silent: 1, 1.50"},
		},
		"a renewal before the first write does not shorten it": {
			[]func(*Holders){see(held(1, "aaaaaaaa", 1)), see(held(2, "bbbbbbbb", 9)), see(held(2, "bbbbbbbb", 10)), admit(2)},
			[]string{"handover_first_write_seconds: 1, 4.50", "handover_vacancy_seconds silent: 1, 1.50", "renewal_gap_ratio: 1, 0.15"},
		},
		"a write under another generation is not the first": {
			[]func(*Holders){see(held(1, "aaaaaaaa", 1)), see(held(2, "bbbbbbbb", 9)), admit(1)},
			[]string{"handover_vacancy_seconds silent: 1, 1.50"},
		},
		"the first holder of all takes over from nobody": {
			[]func(*Holders){see(held(0, "", 0)), see(held(1, "aaaaaaaa", 1)), admit(1)}, nil,
		},
		"a list tells no time, the event after it does": {
			[]func(*Holders){list(held(1, "aaaaaaaa", 1)), see(held(1, "aaaaaaaa", 2)), see(held(1, "aaaaaaaa", 3))},
			[]string{"renewal_gap_ratio: 1, 0.15"},
		},
		"a handover behind a gap of the watch has no time": {
			[]func(*Holders){see(held(1, "aaaaaaaa", 1)), list(held(1, "aaaaaaaa", 5)), see(held(2, "bbbbbbbb", 6)), admit(2)}, nil,
		},
		"a list that shows what is known changes nothing": {
			[]func(*Holders){see(held(1, "aaaaaaaa", 1)), list(held(1, "aaaaaaaa", 1)), see(held(1, "aaaaaaaa", 2))},
			[]string{"renewal_gap_ratio: 1, 0.30"},
		},
		"a lease created anew is another": {
			[]func(*Holders){see(held(1, "aaaaaaaa", 1)), see(other(held(2, "bbbbbbbb", 2))), admit(2)}, nil,
		},
		"a deleted lease is forgotten": {
			[]func(*Holders){see(held(1, "aaaaaaaa", 1)), func(h *Holders) { h.gone(keyA) }, see(held(1, "aaaaaaaa", 2)), admit(1)}, nil,
		},
		"a store that went back hands nothing over": {
			[]func(*Holders){see(held(2, "bbbbbbbb", 2)), see(held(1, "aaaaaaaa", 1)), admit(1)}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
			h := NewHolders(now)
			for _, s := range test.steps {
				s(h)
				now.SetTime(now.Now().Add(step))
			}
			if diff := cmp.Diff(test.want, measured(t, h)); diff != "" {
				t.Errorf("measured (-want +got):\n%s", diff)
			}
		})
	}
}

// Alerts on leases whose holder is gone rest on this.
func TestHoldersCountThoseThatAreOverdue(t *testing.T) {
	t.Parallel()
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	h := NewHolders(now)
	for _, step := range []struct {
		name string
		do   func()
		pass time.Duration
		want int
	}{
		{"a holder that has just acquired", func() { h.changed(held(1, "aaaaaaaa", 1)) }, 10 * time.Second, 0},
		{"its whole duration is over", func() {}, time.Second, 1},
		{"a change that is no renewal", func() { h.changed(held(1, "aaaaaaaa", 1)) }, 0, 1},
		{"the same in a list", func() { h.listed([]*v1alpha1.FencedLease{held(1, "aaaaaaaa", 1)}) }, 0, 1},
		{"a renewal that a list shows", func() { h.listed([]*v1alpha1.FencedLease{held(1, "aaaaaaaa", 2)}) }, 10 * time.Second, 0},
		{"silence after that", func() {}, time.Second, 1},
		{"a renewal", func() { h.changed(held(1, "aaaaaaaa", 3)) }, 11 * time.Second, 1},
		{"a release", func() { h.changed(releasedBy(held(1, "aaaaaaaa", 3))) }, time.Minute, 0},
		{"a successor", func() { h.changed(held(2, "bbbbbbbb", 4)) }, 11 * time.Second, 1},
		{"the lease is deleted", func() { h.gone(keyA) }, time.Minute, 0},
	} {
		step.do()
		now.SetTime(now.Now().Add(step.pass))
		if got := h.countOverdue(); got != step.want {
			t.Errorf("%s: want %d overdue, got %d", step.name, step.want, got)
		}
	}
}

// The view feeds its Holders: events count, and so does nothing that arrives after the copy was replaced.
func TestAViewFeedsItsHolders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := NewHolders(clock.RealClock{})
		s := newStore(clock.RealClock{}, nil, h)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(s.Replace(nil, "90"))
		must(s.Add(held(1, "aaaaaaaa", 1)))
		pass(2 * time.Second)
		must(s.Update(held(1, "aaaaaaaa", 2)))
		s.freeze()
		pass(2 * time.Second)
		must(s.Update(held(1, "aaaaaaaa", 3)))
		if diff := cmp.Diff([]string{"renewal_gap_ratio: 1, 0.20"}, measured(t, h)); diff != "" {
			t.Errorf("measured (-want +got):\n%s", diff)
		}
		must(newStore(clock.RealClock{}, nil, h).Replace([]any{held(1, "aaaaaaaa", 3)}, "100"))
		must(s.Delete(held(1, "aaaaaaaa", 3)))
		if len(h.leases) != 1 {
			t.Error("a frozen copy has made the holder be forgotten")
		}
	})
}
