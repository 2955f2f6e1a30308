// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/fencedlease/fencedlease/pkg/token"
)

// world is a Sealer without an API server: orders succeed, or fail with an error, before anything is asked for.
type world struct {
	*testing.T
	clock  *testingclock.FakeClock
	sealer *Sealer
	woken  chan types.NamespacedName
	// outcome is what orders fail with, and asked counts them.
	outcome chan error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, clock: testingclock.NewFakeClock(time.Unix(0, 0)), woken: make(chan types.NamespacedName, 64), outcome: make(chan error, 64)}
	w.sealer = New(Options{
		Metrics: NewMetrics(), Clock: w.clock,
		Wake:    func(_ context.Context, lease types.NamespacedName) { w.woken <- lease },
		Above:   func(types.NamespacedName, int64, string) {},
		Created: func(Order, string, bool, error) {},
		Later:   func(Order, int64) {},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.sealer.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) order(generation int64, version string) Order {
	return Order{
		Lease: types.NamespacedName{Namespace: "reports", Name: "writer"}, UID: "u", Version: version,
		Token: token.Token{Generation: generation, Term: "aaaaaaaa"},
		Targets: func(ctx context.Context) ([]Target, error) {
			// A session that has ended takes no outcome from the one that follows it.
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			select {
			case err := <-w.outcome:
				return nil, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}
}

func (w *world) awaitWake() {
	w.Helper()
	select {
	case <-w.woken:
	case <-w.Context().Done():
		w.Fatal("the lease was not woken")
	}
}

func (w *world) check(order Order, state State, message string, again time.Duration) {
	w.Helper()
	status, in := w.sealer.Seal(w.Context(), order)
	if status.State != state || status.Message != message || in != again {
		w.Errorf("got %s %q, again in %s; want %s %q, again in %s", status.State, status.Message, in, state, message, again)
	}
}

func TestASealThatFailsIsTriedAgainLaterAndLater(t *testing.T) {
	w := newWorld(t)
	order := w.order(1, "1")
	w.check(order, Stamping, "", progressPause)
	pauses := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, longestPause, longestPause}
	for _, pause := range pauses {
		w.outcome <- errors.New("no quorum")
		w.awaitWake()
		w.check(order, Failing, "no quorum", pause)
		w.clock.Step(pause - time.Millisecond)
		w.check(order, Failing, "no quorum", time.Millisecond)
		w.clock.Step(time.Millisecond)
		// It begins anew, and what went wrong stands until it is known to be right.
		w.check(order, Failing, "no quorum", progressPause)
	}
	w.outcome <- nil
	w.awaitWake()
	w.check(order, Done, "", 0)
	if n := counterOf(t, w.sealer.options.Metrics, "fencedlease_seals_total", "Failed"); n != float64(len(pauses)) {
		t.Errorf("%v failures were counted, want %d", n, len(pauses))
	}
	if n := counterOf(t, w.sealer.options.Metrics, "fencedlease_seals_total", "Sealed"); n != 1 {
		t.Errorf("%v seals were counted, want 1", n)
	}
	// The first attempt counts: it is what the leader has waited for.
	if sum := histogramSum(t, w.sealer.options.Metrics, "fencedlease_seal_duration_seconds"); sum != 91 {
		t.Errorf("the seal took %v s, want 91", sum)
	}
}

func TestANewerTermEndsTheSealOfAnOlderOne(t *testing.T) {
	w := newWorld(t)
	first, second := w.order(1, "1"), w.order(2, "1")
	w.check(first, Stamping, "", progressPause)
	w.check(second, Stamping, "", progressPause)
	if _, running := w.sealer.Running(first); running {
		t.Error("the older seal goes on")
	}
	w.outcome <- nil
	w.awaitWake()
	w.check(second, Done, "", 0)
	if n := counterOf(t, w.sealer.options.Metrics, "fencedlease_seals_total", "Superseded"); n != 1 {
		t.Errorf("%v superseded seals were counted, want 1", n)
	}
}

func TestAPausedSealBeginsAnewWithTheSameOrder(t *testing.T) {
	w := newWorld(t)
	order := w.order(1, "1")
	w.check(order, Stamping, "", progressPause)
	w.sealer.Pause(order.Lease)
	if _, running := w.sealer.Running(order); running {
		t.Error("a paused seal runs")
	}
	w.check(order, Stamping, "", progressPause)
	w.outcome <- nil
	w.awaitWake()
	w.check(order, Done, "", 0)
	w.sealer.End(order.Lease)
	if _, running := w.sealer.Running(order); running {
		t.Error("a seal that was ended runs")
	}
	w.sealer.Pause(order.Lease)
}

// sealedGeneration never falls but by a restore of the store, which has undone stamps, too.
func TestALeaseThatIsUnsealedAgainIsSealedAnew(t *testing.T) {
	w := newWorld(t)
	order := w.order(1, "1")
	recorded := order
	recorded.Sealed = true
	seal := func() {
		t.Helper()
		w.check(order, Stamping, "", progressPause)
		w.outcome <- nil
		w.awaitWake()
		w.check(order, Done, "", 0)
		w.check(order, Done, "", 0) // until it is recorded
		w.check(recorded, Done, "", 0)
		w.check(recorded, Done, "", 0)
	}
	seal()
	if _, running := w.sealer.Running(order); running {
		t.Error("what was stamped before the restore counts")
	}
	seal()
	if n := counterOf(t, w.sealer.options.Metrics, "fencedlease_seals_total", "Sealed"); n != 2 {
		t.Errorf("%v seals were counted, want 2", n)
	}
}

func TestALenientOrderWaitsForNoRight(t *testing.T) {
	w := newWorld(t)
	strict, lenient := &session{sealer: w.sealer}, &session{sealer: w.sealer, order: Order{Lenient: true}}
	missing := lenient.lacks("list", reports.GroupResource(), errors.New("no rule"))
	other := errors.New("no quorum")
	for name, test := range map[string]struct {
		session *session
		err     error
		want    error
	}{
		"nothing is wrong":         {strict, nil, nil},
		"a right is missing":       {strict, missing, missing},
		"in Audit it is not asked": {lenient, missing, nil},
		"anything else is":         {lenient, other, other},
	} {
		if got := test.session.pardoned(test.err); !errors.Is(got, test.want) || (got == nil) != (test.want == nil) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestASealerIsStartedOnce(t *testing.T) {
	w := newWorld(t)
	w.check(w.order(1, "1"), Stamping, "", progressPause)
	if err := w.sealer.Start(t.Context()); err == nil {
		t.Error("it was started twice")
	}
	if !w.sealer.NeedLeaderElection() {
		t.Error("it would run on every replica")
	}
}

func TestAnOrderOfAReplicaThatIsNotElectedWaits(t *testing.T) {
	s := New(Options{Metrics: NewMetrics(), Clock: testingclock.NewFakeClock(time.Unix(0, 0))})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if status, again := s.Seal(ctx, Order{}); status.State != Stamping || again != 0 {
		t.Errorf("got %+v, again in %s", status, again)
	}
}
