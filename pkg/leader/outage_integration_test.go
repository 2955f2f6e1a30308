//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader"
)

func TestARestartOfTheAPIServerEndsNoTermAndNoFollower(t *testing.T) {
	o := newLease(t, func(l *v1alpha1.FencedLease) { l.Spec.LeaseDurationSeconds = 120 })
	retry := func(options *leader.Options) { options.RetryPeriod = time.Second }
	a := o.candidate("worker-a", retry)
	first := a.leads()
	b := o.candidate("worker-b", retry)
	b.waitsForHolder("worker-a")
	if err := server.RestartAPIServer(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	before := a.metrics.renewals()
	eventually(t, "the holder renews", func() bool { return a.metrics.renewals() > before })
	if err := first.Err(); err != nil {
		t.Errorf("the term has ended: %v", err)
	}
	watches := b.wire.requests("WATCH")
	if watches < 2 {
		eventually(t, "the follower watches again", func() bool { return b.wire.requests("WATCH") > 1 })
	}
	a.finish <- nil
	second := b.leads()
	equal(t, "generation of the next term", first.Info().Generation+1, second.Info().Generation)
}

func TestAnAPIServerThatIsGoneForLongerThanTheLeaseEndsTheTerm(t *testing.T) {
	o := newLease(t)
	a := o.candidate("worker-a")
	first := a.leads()
	b := o.candidate("worker-b")
	b.waitsForHolder("worker-a")
	stopped := false
	t.Cleanup(func() {
		if stopped {
			_ = server.StartAPIServer(t.Context(), 0) // the tests that follow need it
		}
	})
	if err := server.KillAPIServer(0); err != nil {
		t.Fatal(err)
	}
	stopped = true
	lost := lostTerm(t, ended(t, first))
	equal(t, "Expired", true, lost.Expired)
	if errors.Unwrap(lost) == nil {
		t.Error("the loss does not say how the last renewal failed")
	}
	a.event("Warning LeadershipLost term " + first.Token().String())
	_ = a.waitsFor(leader.ErrUnavailable)
	_ = b.waitsFor(leader.ErrUnavailable)
	if err := server.StartAPIServer(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	stopped = false
	var second *leader.Term
	select {
	case second = <-a.started:
	case second = <-b.started:
	case <-time.After(timeout):
		t.Fatal("timed out waiting for one of two to lead")
	}
	equal(t, "generation of the next term", first.Info().Generation+1, second.Info().Generation)
	equal(t, "losses of A", []leader.LossReason{leader.LossExpired}, a.metrics.lost())
	equal(t, "losses of B", 0, len(b.metrics.lost()))
}
