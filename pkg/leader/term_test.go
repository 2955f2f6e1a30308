// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// handClock shows what a test says. Its timers never fire, like those of a process that is paused.
type handClock struct {
	origin time.Time
	// passed is what the monotonic clock has counted, stepped by how much the wall clock was set.
	passed, stepped time.Duration
}

func newHandClock() *handClock { return &handClock{origin: time.Now()} }

// Now returns a time whose monotonic reading tells nothing of the steps of the wall clock, as time.Now does.
func (c *handClock) Now() time.Time {
	now := c.origin.Add(c.passed)
	// The first word of a time.Time has the wall clock's seconds above 30 bits of nanoseconds, the second the monotonic one.
	wall := (*uint64)(unsafe.Pointer(&now))
	*wall += uint64(c.stepped/time.Second) << 30
	return now
}

func (c *handClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

var termInfo = Info{Namespace: "reports", Name: "report-writer", UID: "u1", Generation: 101, ID: "aaaaaaaa", Holder: "me", Seal: v1alpha1.SealNotRequired}

func newTestTerm(t *testing.T) (*Term, context.Context, *handClock) {
	t.Helper()
	c := newHandClock()
	term, work := newTerm(t.Context(), termInfo, c, newView(c), c.Now(), timing{lease: 15 * time.Second, deadline: 10 * time.Second, retry: 2 * time.Second, request: 4 * time.Second})
	return term, work, c
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func TestAStepOfTheWallClockChangesNothing(t *testing.T) {
	for name, step := range map[string]time.Duration{"a day ahead": 24 * time.Hour, "a day back": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			term, _, c := newTestTerm(t)
			wall := c.Now().Round(0)
			c.passed += 9 * time.Second
			c.stepped = step
			if diff := cmp.Diff(step+9*time.Second, c.Now().Round(0).Sub(wall)); diff != "" {
				t.Fatalf("step of the test's wall clock (-want +got):\n%s", diff)
			}
			if err := term.Err(); err != nil {
				t.Errorf("the term has ended after 9 of 10 seconds: %v", err)
			}
			c.passed += time.Second
			if term.Err() == nil {
				t.Error("the term has not ended after 10 seconds")
			}

			// The same for a follower.
			v := newView(c)
			v.saw(freeLease(held("other")))
			seen, _ := v.look()
			o := Options{Namespace: "reports", Name: "report-writer"}
			c.stepped = -step
			c.passed += 14 * time.Second
			if got := o.decide(seen, nil, "", seen.since, c.Now()); got.action != doWait {
				t.Errorf("decision after 14 of 15 seconds: %v", got.action)
			}
			c.passed += 3 * time.Second
			if got := o.decide(seen, nil, "", seen.since, c.Now()); got.action != doAcquire {
				t.Errorf("decision after 17 of 15 seconds: %v", got.action)
			}
		})
	}
}

func TestAPausedProcessSeesTheEndInItsFirstCall(t *testing.T) {
	term, work, c := newTestTerm(t)
	c.passed += 10*time.Second - 1
	if err := term.Err(); err != nil || work.Err() != nil || isDone(term.Done()) {
		t.Fatalf("the term has ended before its deadline: %v", err)
	}
	c.passed++
	var lost *LostError
	if err := term.Err(); !errors.As(err, &lost) || !lost.Expired {
		t.Errorf("want an expired term, got %v", err)
	}
	if !isDone(term.Done()) || work.Err() == nil {
		t.Error("Done and the context of the work do not know of the end that Err has told")
	}
}

func TestAConfirmationAfterTheDeadlineIsTooLate(t *testing.T) {
	term, _, c := newTestTerm(t)
	sent := c.Now().Add(9 * time.Second)
	c.passed += 11 * time.Second
	term.confirm(sent)
	if term.Err() == nil {
		t.Error("a confirmation after the deadline has revived the term")
	}
}

func TestConfirmationsCountFromTheirSending(t *testing.T) {
	term, _, c := newTestTerm(t)
	c.passed = 2 * time.Second
	sent := c.Now()
	c.passed = 6 * time.Second
	if diff := cmp.Diff(2*time.Second, term.confirm(sent)); diff != "" {
		t.Errorf("gap (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(6*time.Second, term.left()); diff != "" {
		t.Errorf("validity that is left (-want +got):\n%s", diff)
	}
	term.retime(timing{deadline: 3 * time.Second}) // the lease was made shorter
	if term.Err() == nil {
		t.Error("the term is older than its new deadline and has not ended")
	}
}

func TestTheFirstEndStays(t *testing.T) {
	term, work, c := newTestTerm(t)
	cause := errors.New("how the last renewal failed")
	term.failed(cause)
	term.end(ErrReleased)
	c.passed += time.Hour
	term.end(errors.New("later"))
	term.observe(observation{})
	if err := term.Err(); !errors.Is(err, ErrReleased) || !errors.Is(context.Cause(work), ErrReleased) {
		t.Errorf("want %v, got %v, and %v as cause", ErrReleased, err, context.Cause(work))
	}

	term, _, c = newTestTerm(t)
	term.failed(cause)
	c.passed += time.Hour
	if err := term.Err(); !errors.Is(err, cause) {
		t.Errorf("an expired term must say how the last renewal failed, got %v", err)
	}
}

func TestATermObservesItsLease(t *testing.T) {
	mine := held("me")
	for name, c := range map[string]struct {
		seen  observation
		ready bool
		lost  *LossReason
	}{
		"held":                  {seen: observation{lease: freeLease(mine)}, ready: true},
		"held with conditions":  {seen: observation{lease: freeLease(mine, func(l *v1alpha1.FencedLease) { l.Status.ObservedGeneration = 7 })}, ready: true},
		"gone":                  {seen: observation{}, lost: lossOf(LossDeleted)},
		"another lease":         {seen: observation{lease: freeLease(mine, func(l *v1alpha1.FencedLease) { l.UID = "u2" })}, lost: lossOf(LossDeleted)},
		"emptied":               {seen: observation{lease: freeLease(held(""))}, lost: lossOf(LossReleased)},
		"another holder":        {seen: observation{lease: freeLease(held("other"))}, lost: lossOf(LossTaken)},
		"a later term, emptied": {seen: observation{lease: freeLease(held(""), func(l *v1alpha1.FencedLease) { *l.Status.Generation = 102 })}, lost: lossOf(LossTaken)},
	} {
		t.Run(name, func(t *testing.T) {
			term, work, _ := newTestTerm(t)
			term.observe(c.seen)
			term.observe(c.seen)
			if diff := cmp.Diff(c.ready, term.Ready(work) == nil); diff != "" {
				t.Errorf("ready (-want +got):\n%s", diff)
			}
			var lost *LostError
			if is := errors.As(term.Err(), &lost); is != (c.lost != nil) {
				t.Fatalf("error of the term: %v", term.Err())
			}
			if lost != nil {
				if diff := cmp.Diff(*c.lost, reasonOf(lost)); diff != "" {
					t.Errorf("reason (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func lossOf(reason LossReason) *LossReason { return &reason }

func TestReadyWaitsForTheSeal(t *testing.T) {
	term, _, _ := newTestTerm(t)
	term.info.Seal = v1alpha1.SealRequired
	term.observe(observation{lease: freeLease(held("me"))})
	ctx, cancel := context.WithCancelCause(t.Context())
	errStop := errors.New("stop")
	cancel(errStop)
	if err := term.Ready(ctx); !errors.Is(err, errStop) {
		t.Errorf("before the seal: want %v, got %v", errStop, err)
	}
	term.observe(observation{lease: freeLease(held("me"), func(l *v1alpha1.FencedLease) { *l.Status.SealedGeneration = 101 })})
	if err := term.Ready(t.Context()); err != nil {
		t.Errorf("after the seal: %v", err)
	}
}

func TestTheViewKeepsTheNewest(t *testing.T) {
	at := func(revision string, mutations ...func(*v1alpha1.FencedLease)) *v1alpha1.FencedLease {
		return freeLease(append(mutations, func(l *v1alpha1.FencedLease) { l.ResourceVersion = revision })...)
	}
	shown := func(v *view) string {
		seen, _ := v.look()
		switch {
		case !seen.known:
			return "unknown"
		case seen.lease == nil:
			return "none"
		default:
			return seen.lease.ResourceVersion
		}
	}
	for name, c := range map[string]struct {
		tell func(v *view)
		want string
	}{
		"nothing was told":                    {func(*view) {}, "unknown"},
		"a later event":                       {func(v *view) { v.saw(at("99")); v.saw(at("100")) }, "100"},
		"an event that was on its way":        {func(v *view) { v.saw(at("100")); v.saw(at("99")) }, "100"},
		"a deletion":                          {func(v *view) { v.saw(at("100")); v.gone("101") }, "none"},
		"a deletion that was on its way":      {func(v *view) { v.saw(at("100")); v.gone("99") }, "100"},
		"an event before the deletion":        {func(v *view) { v.gone("101"); v.saw(at("100")) }, "none"},
		"a lease after the deletion":          {func(v *view) { v.gone("101"); v.saw(at("102")) }, "102"},
		"a read that began before an event":   {func(v *view) { v.saw(at("99")); seen, _ := v.look(); v.saw(at("101")); v.read(at("100"), seen.version) }, "101"},
		"a read of a store that was restored": {func(v *view) { v.saw(at("500")); seen, _ := v.look(); v.read(at("100"), seen.version) }, "100"},
		"an event after such a read": {func(v *view) {
			v.saw(at("500"))
			seen, _ := v.look()
			v.read(at("100"), seen.version)
			v.saw(at("101"))
		}, "101"},
		"a read of nothing":                  {func(v *view) { v.saw(at("100")); seen, _ := v.look(); v.read(nil, seen.version) }, "none"},
		"a read of nothing, before an event": {func(v *view) { v.saw(at("99")); seen, _ := v.look(); v.saw(at("100")); v.read(nil, seen.version) }, "100"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newView(newHandClock())
			c.tell(v)
			if diff := cmp.Diff(c.want, shown(v)); diff != "" {
				t.Errorf("view (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlySignsOfLifeBeginTheWaitAnew(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.FencedLease)
		anew   bool
	}{
		"conditions": {func(l *v1alpha1.FencedLease) { l.Status.ObservedGeneration = 7 }, false},
		"guards":     {func(l *v1alpha1.FencedLease) { l.Spec.Guards = []v1alpha1.Guard{{}} }, false},
		"a release":  {func(l *v1alpha1.FencedLease) { *l.Status.HolderIdentity = "" }, true},
		"a duration": {func(l *v1alpha1.FencedLease) { l.Spec.LeaseDurationSeconds = 16 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newHandClock()
			v := newView(clock)
			v.saw(freeLease(held("other")))
			before, changed := v.look()
			clock.passed = time.Second
			v.saw(freeLease(held("other"), c.change, func(l *v1alpha1.FencedLease) { l.ResourceVersion = "101" }))
			after, _ := v.look()
			if diff := cmp.Diff(c.anew, after.since.After(before.since)); diff != "" {
				t.Errorf("whether the wait begins anew (-want +got):\n%s", diff)
			}
			if !isDone(changed) {
				t.Error("nobody was told of the change")
			}
		})
	}
}

func TestWorkThatWasLeftIsToldFrom(t *testing.T) {
	w := &worker{done: make(chan outcome, 1)}
	if _, returned := w.leave(); returned || w.deliver(outcome{}) {
		t.Error("work that was left delivers its outcome")
	}
	w = &worker{done: make(chan outcome, 1)}
	if !w.deliver(outcome{err: ErrWorkExited}) {
		t.Error("nobody takes the outcome")
	}
	if result, returned := w.leave(); !returned || !errors.Is(result.err, ErrWorkExited) {
		t.Error("the outcome of work that has just returned is lost")
	}
}
