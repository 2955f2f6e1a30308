// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
)

// interruptedError is the cause of a context that a signal ended.
type interruptedError struct{ signal os.Signal }

func (e *interruptedError) Error() string { return "interrupted by signal " + e.signal.String() }

// Main runs the plugin and returns its exit code. A signal to end ends what is being done and has the exit code that shells
// give it, 128 and its number; run passes signals on to its command instead.
func Main(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case s := <-signals:
			cancel(&interruptedError{signal: s})
		case <-done:
		}
	}()
	f := cli.NewFactory(streams, clock.RealClock{}, os.Getenv)
	return Execute(ctx, f, args)
}

// Execute runs the plugin with streams, clock and environment of the caller, and returns its exit code.
func Execute(ctx context.Context, f *cli.Factory, args []string) int {
	root := NewCommand(f)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var interrupted *interruptedError
	if errors.As(err, &interrupted) || errors.As(context.Cause(ctx), &interrupted) && errors.Is(err, context.Canceled) {
		if err != error(interrupted) && !errors.Is(err, context.Canceled) { //nolint:errorlint // is there anything besides?
			f.Say("error: %v", err)
		}
		return exitCodeOf(interrupted.signal)
	}
	var usage *cli.UsageError
	var coded *cli.CodeError
	switch {
	case err == nil:
	case errors.As(err, &coded) && coded.Err == nil:
	case errors.As(err, &usage):
		f.Say("error: %v\nSee '%s --help' for usage.", err, cmd.CommandPath())
	default:
		f.Say("error: %v", err)
	}
	return cli.ExitCode(err)
}

func exitCodeOf(s os.Signal) int {
	if number, ok := s.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return cli.ExitInterrupted
}
