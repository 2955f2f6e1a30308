// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sent are signals that a test sends.
type sent struct {
	to      chan<- os.Signal
	stopped bool
}

func (s *sent) Notify(c chan<- os.Signal, _ ...os.Signal) { s.to = c }
func (s *sent) Stop(chan<- os.Signal)                     { s.stopped = true }

func TestASignalEndsTheContext(t *testing.T) {
	for signal, code := range map[os.Signal]int{os.Interrupt: 130, syscall.SIGTERM: 143} {
		signals := &sent{}
		ctx, stop := cli.Interruptible(t.Context(), signals)
		signals.to <- signal
		<-ctx.Done()
		var interrupted *cli.InterruptedError
		if !errors.As(context.Cause(ctx), &interrupted) || interrupted.ExitCode() != code {
			t.Errorf("%s: want exit code %d, got cause %v", signal, code, context.Cause(ctx))
		}
		if stop(); !signals.stopped {
			t.Error("signals have to be given back")
		}
	}
}

func TestExitCodesOfErrors(t *testing.T) {
	for want, err := range map[int]error{
		cli.ExitOK: nil, cli.ExitError: errors.New("no"), cli.ExitRefused: errors.Join(errors.New("no"), cli.Refused(errors.New("stale"))), 7: &cli.CodeError{Code: 7},
	} {
		if got := cli.ExitCode(err); got != want {
			t.Errorf("exit code of %v: want %d, got %d", err, want, got)
		}
	}
}
