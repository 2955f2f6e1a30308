// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/clitest"
	"github.com/fencedlease/fencedlease/pkg/leader"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWaitingEndsWhereItIsOfNoUse(t *testing.T) {
	held := fmt.Errorf("FencedLease reports/report-writer: %w", &leader.HeldError{HolderIdentity: "other", Generation: 7})
	for name, c := range map[string]struct {
		wait   bool
		reason error
		gives  string
		code   int
		says   string
	}{
		"another holds it":                     {true, held, "", 0, "Waiting: "},
		"another holds it, without waiting":    {false, held, "leave --wait=false out", 2, ""},
		"not ready":                            {true, leader.ErrNotReady, "", 0, "Waiting: lease is not ready."},
		"not ready, without waiting":           {false, leader.ErrNotReady, "leave --wait=false out", 1, ""},
		"the seal is pending, without waiting": {false, leader.ErrSealPending, "", 0, "Waiting: "},
		"no API server":                        {true, leader.ErrUnavailable, "", 0, "Waiting: "},
		"no permission":                        {true, leader.ErrForbidden, "kubectl fencedlease rbac report-writer", 1, ""},
		"no lease":                             {true, leader.ErrMissing, "lease is missing", 1, ""},
		"too short":                            {true, leader.ErrLeaseTooShort, "too short", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			streams, _, _, errOut := genericiooptions.NewTestIOStreams()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			w := newWaiter(&Options{Factory: &cli.Factory{IOStreams: streams}, Name: "report-writer", Wait: c.wait}, cancel)
			defer w.close()
			w.told(c.reason)
			err := context.Cause(ctx)
			if (err == nil) != (c.gives == "") || err != nil && (!strings.Contains(err.Error(), c.gives) || cli.ExitCode(err) != c.code || !errors.Is(err, c.reason)) {
				t.Errorf("want %q and exit code %d, got %v", c.gives, c.code, err)
			}
			if !strings.Contains(errOut.String(), c.says) {
				t.Errorf("want %q, got %q", c.says, errOut)
			}
		})
	}
}

func TestWaitingEndsAtItsTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		reason error
		code   int
	}{
		"another holds the lease": {&leader.HeldError{HolderIdentity: "other"}, 2},
		"no API server":           {leader.ErrUnavailable, 1},
		"nothing is known":        {nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			streams, _, _, _ := genericiooptions.NewTestIOStreams()
			clk := clocktesting.NewFakeClock(clitest.Now)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			w := newWaiter(&Options{Factory: &cli.Factory{IOStreams: streams, Clock: clk}, Wait: true, Timeout: time.Minute}, cancel)
			defer w.close()
			if c.reason != nil {
				w.told(c.reason)
			}
			clk.Step(time.Minute)
			<-ctx.Done()
			if err := context.Cause(ctx); cli.ExitCode(err) != c.code || !strings.Contains(err.Error(), "within 1m0s: give a longer --timeout") {
				t.Errorf("want exit code %d and a next step, got %v", c.code, err)
			}
		})
	}
	t.Run("not once the lease is held", func(t *testing.T) {
		clk := clocktesting.NewFakeClock(clitest.Now)
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		w := newWaiter(&Options{Factory: &cli.Factory{Clock: clk}, Wait: true, Timeout: time.Minute}, cancel)
		w.close()
		clk.Step(time.Hour)
		w.expire() // as if its timer had fired at the same moment
		if ctx.Err() != nil {
			t.Errorf("the command must not be ended: %v", context.Cause(ctx))
		}
	})
}
