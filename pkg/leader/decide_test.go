// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/possession"
)

func TestDecide(t *testing.T) {
	began := time.Now()
	mine := map[string]attempt{"aaaaaaaa": {
		info:   Info{Namespace: "reports", Name: "report-writer", UID: "u1", Generation: 101, ID: "aaaaaaaa", Holder: "me"},
		sent:   began,
		timing: timing{lease: 15 * time.Second, deadline: 10 * time.Second},
	}}
	seen := func(mutations ...func(*v1alpha1.FencedLease)) observation {
		return observation{known: true, lease: freeLease(mutations...), since: began, spread: 0.5}
	}
	emptied := func(l *v1alpha1.FencedLease) { l.Status.HolderIdentity = ptr.To("") }
	noStatus := func(l *v1alpha1.FencedLease) { l.Status = v1alpha1.FencedLeaseStatus{} }
	short := func(l *v1alpha1.FencedLease) { l.Spec.LeaseDurationSeconds = 3 }
	errWatch := errors.New("no watch")
	for name, c := range map[string]struct {
		seen     observation
		options  Options
		attempts map[string]attempt
		mine     string
		after    time.Duration
		action   action
		reason   error
		at       time.Duration // since began, 0 for never
		free     time.Duration // since began
	}{
		"nothing seen yet":                   {seen: observation{problem: errWatch}, after: 4 * time.Second, reason: errWatch, at: 5 * time.Second},
		"nothing seen for too long":          {seen: observation{}, after: 5 * time.Second, action: doRead},
		"no lease":                           {seen: observation{known: true}, reason: ErrMissing},
		"no lease and leave to create it":    {seen: observation{known: true}, options: Options{CreateWith: &v1alpha1.FencedLeaseSpec{}}, action: doCreate},
		"no floor":                           {seen: seen(noStatus), reason: ErrNotReady},
		"never held, before its spread":      {seen: seen(), after: 9 * time.Millisecond, at: 10 * time.Millisecond},
		"never held, after its spread":       {seen: seen(), after: 10 * time.Millisecond, action: doAcquire},
		"released, before its spread":        {seen: seen(held("other"), emptied), at: 10 * time.Millisecond},
		"released, after its spread":         {seen: seen(held("other"), emptied), after: 10 * time.Millisecond, action: doAcquire},
		"held":                               {seen: seen(held("other")), reason: &HeldError{}, at: 15*time.Second + 500*time.Millisecond, free: 15 * time.Second},
		"silent, before its spread":          {seen: seen(held("other")), after: 15*time.Second + 499*time.Millisecond, reason: &HeldError{}, at: 15*time.Second + 500*time.Millisecond, free: 15 * time.Second},
		"silent, after its spread":           {seen: seen(held("other")), after: 15*time.Second + 500*time.Millisecond, action: doAcquire, free: 15 * time.Second},
		"silent, of a short lease":           {seen: seen(held("other"), short), after: 3*time.Second + 150*time.Millisecond, action: doAcquire, free: 3 * time.Second},
		"held by the own identity":           {seen: seen(held("me")), reason: &HeldError{}, at: 15*time.Second + 500*time.Millisecond, free: 15 * time.Second},
		"the own attempt":                    {seen: seen(held("me")), attempts: mine, after: 9 * time.Second, action: doAdopt},
		"the own attempt, too old":           {seen: seen(held("me")), attempts: mine, after: 10 * time.Second, action: doAcquire},
		"the own attempt, emptied since":     {seen: seen(held("me"), emptied), attempts: mine, after: 10 * time.Millisecond, action: doAcquire},
		"another term of the own identity":   {seen: seen(held("me"), func(l *v1alpha1.FencedLease) { l.Status.Term = ptr.To("bbbbbbbb") }), attempts: mine, reason: &HeldError{}, at: 15*time.Second + 500*time.Millisecond, free: 15 * time.Second},
		"the own last term":                  {seen: seen(held("me")), mine: "aaaaaaaa", after: 10 * time.Millisecond, action: doAcquire},
		"too short for the deadline":         {seen: seen(), options: Options{RenewDeadline: 15 * time.Second}, after: time.Hour, reason: ErrLeaseTooShort},
		"too short for the retry period":     {seen: seen(), options: Options{RetryPeriod: 5*time.Second + 1}, after: time.Hour, reason: ErrLeaseTooShort},
		"just long enough":                   {seen: seen(), options: Options{RenewDeadline: 15*time.Second - 1}, after: time.Hour, action: doAcquire},
		"held, and too short for the others": {seen: seen(held("other")), options: Options{RenewDeadline: time.Hour}, reason: ErrLeaseTooShort},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.Namespace, c.options.Name, c.options.Identity = "reports", "report-writer", "me"
			got := c.options.decide(c.seen, c.attempts, c.mine, began, began.Add(c.after))
			if diff := cmp.Diff(c.action, got.action); diff != "" {
				t.Errorf("action (-want +got):\n%s", diff)
			}
			var heldError *HeldError
			switch {
			case errors.As(c.reason, &heldError):
				if !errors.As(got.reason, &heldError) || heldError.Generation != 101 || heldError.HolderIdentity == "" {
					t.Errorf("reason: want a HeldError of generation 101, got %v", got.reason)
				}
			case !errors.Is(got.reason, c.reason):
				t.Errorf("reason: want %v, got %v", c.reason, got.reason)
			}
			if at := got.at; (c.at == 0) != at.IsZero() || c.at != 0 && !at.Equal(began.Add(c.at)) {
				t.Errorf("time of the next decision: want %s after the begin, got %s", c.at, at.Sub(began))
			}
			if !got.free.IsZero() && !got.free.Equal(began.Add(c.free)) {
				t.Errorf("free since: want %s after the begin, got %s", c.free, got.free.Sub(began))
			}
			if got.action == doAcquire && got.timing.request == 0 {
				t.Error("an acquisition without timing")
			}
		})
	}
}

func TestTimingFitsEveryLease(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seconds := rapid.Int32Range(1, 3600).Draw(rt, "leaseDurationSeconds")
		o := Options{
			RenewDeadline: time.Duration(rapid.Int64Range(int64(minDuration), int64(time.Hour)).Draw(rt, "RenewDeadline")),
			RetryPeriod:   time.Duration(rapid.Int64Range(int64(minDuration), int64(time.Hour)).Draw(rt, "RetryPeriod")),
		}
		if rapid.Bool().Draw(rt, "defaults") {
			o = Options{}
		}
		got, err := o.timing(seconds)
		if err != nil {
			if !errors.Is(err, ErrLeaseTooShort) || o.RenewDeadline == 0 && o.RetryPeriod == 0 {
				rt.Fatalf("timing: %v", err)
			}
			if got, err = o.heldTiming(seconds); err == nil || got.deadline == 0 {
				rt.Fatalf("timing of a held lease: got %+v and %v", got, err)
			}
		}
		if got.retry <= 0 || got.request <= 0 || got.deadline >= got.lease || got.retry+2*got.request > got.deadline {
			rt.Fatalf("timing %+v of a lease of %d seconds leaves no time for two requests", got, seconds)
		}
	})
}

func TestTimingDefaultsAreThoseOfClientGo(t *testing.T) {
	got, err := (&Options{}).timing(15)
	if err != nil {
		t.Fatal(err)
	}
	want := timing{lease: 15 * time.Second, deadline: 10 * time.Second, retry: 2 * time.Second, request: 4 * time.Second}
	if got != want {
		t.Errorf("timing: want %+v, got %+v", want, got)
	}
}

func TestPausesGrowAndStayWithinTheirLimit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		failures := rapid.IntRange(1, math.MaxInt).Draw(rt, "failures")
		longest := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(rt, "longest"))
		got := pause(failures, longest)
		if got < min(firstPause, longest)/2 || got > longest {
			rt.Fatalf("pause after %d failures: %s, of at most %s", failures, got, longest)
		}
	})
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	config := &rest.Config{Host: "localhost"}
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"no config":                        {Options{Namespace: "ns", Name: "l"}, "make an elector: Options.Config is missing"},
		"no namespace":                     {Options{Config: config, Name: "l"}, `make an elector: the FencedLease ""/"l" needs a namespace and a name`},
		"no name":                          {Options{Config: config, Namespace: "ns"}, `make an elector: the FencedLease "ns"/"" needs a namespace and a name`},
		"a name that is too long":          {Options{Config: config, Namespace: "ns", Name: strings.Repeat("l", 64)}, "make an elector: the name of FencedLease ns/" + strings.Repeat("l", 64) + " has 64 characters, at most 63 are allowed"},
		"an identity that is too long":     {Options{Config: config, Namespace: "ns", Name: "l", Identity: strings.Repeat("x", 254)}, "make an elector on FencedLease ns/l: the identity has 254 characters, at most 253 are allowed"},
		"a negative deadline":              {Options{Config: config, Namespace: "ns", Name: "l", RenewDeadline: -1}, "make an elector on FencedLease ns/l: RenewDeadline -1ns and RetryPeriod 0s must each be zero or at least 10ms"},
		"a retry period above":             {Options{Config: config, Namespace: "ns", Name: "l", RenewDeadline: time.Second, RetryPeriod: time.Second}, "make an elector on FencedLease ns/l: RetryPeriod 1s must be at most half of RenewDeadline 1s"},
		"a lease of its own that is short": {Options{Config: config, Namespace: "ns", Name: "l", RenewDeadline: 9 * time.Second, CreateWith: &v1alpha1.FencedLeaseSpec{LeaseDurationSeconds: 9}}, "make an elector on FencedLease ns/l: Options.CreateWith: lease duration is too short: spec.leaseDurationSeconds is 9 and the elector's renew deadline 9s: raise the first or lower Options.RenewDeadline"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.options)
			if err == nil {
				t.Fatal("New accepted it")
			}
			if diff := cmp.Diff(c.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIdentitiesDifferAndFit(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		elector, err := New(Options{Config: &rest.Config{Host: "localhost"}, Namespace: "ns", Name: "l"})
		if err != nil {
			t.Fatal(err)
		}
		id := elector.Identity()
		if seen[id] || len(id) > possession.MaxIdentityLength || !strings.Contains(id, "_") {
			t.Errorf("identity %q came twice or does not fit", id)
		}
		seen[id] = true
	}
}

func TestNewLeavesTheConfigAlone(t *testing.T) {
	config := &rest.Config{Host: "localhost", QPS: 3, Timeout: time.Hour}
	want := rest.CopyConfig(config)
	if _, err := New(Options{Config: config, Namespace: "ns", Name: "l"}); err != nil {
		t.Fatal(err)
	}
	if config.QPS != want.QPS || config.Timeout != want.Timeout || config.Dial != nil {
		t.Errorf("config was changed to %v", config)
	}
}
