// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
)

// Main runs the plugin with the clock, the environment and the signals of the process, and returns its exit code.
func Main(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	// What libraries log is meant for programs that run on their own. Commands say what went wrong themselves.
	klog.SetLogger(logr.Discard())
	f := cli.NewFactory(streams, clock.RealClock{}, os.Getenv)
	f.Signals, f.Environ = cli.ProcessSignals{}, os.Environ
	return Execute(ctx, f, args)
}

// Execute runs the plugin with what the factory has, and returns its exit code. A signal to end ends what is being done, with
// the exit code that shells give it.
func Execute(ctx context.Context, f *cli.Factory, args []string) int {
	root := NewCommand(f)
	root.SetArgs(args)
	stop := func() {}
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		if _, own := cmd.Annotations[cli.OwnSignals]; own || f.Signals == nil {
			return
		}
		var interruptible context.Context
		interruptible, stop = cli.Interruptible(cmd.Context(), f.Signals)
		cmd.SetContext(interruptible)
	}
	cmd, err := root.ExecuteContextC(ctx)
	defer func() { stop() }()
	return conclude(f, cmd, err)
}

// conclude says what went wrong and returns the exit code.
func conclude(f *cli.Factory, cmd *cobra.Command, err error) int {
	if err == nil {
		return cli.ExitOK
	}
	var interrupted *cli.InterruptedError
	if errors.As(err, &interrupted) || errors.As(context.Cause(cmd.Context()), &interrupted) && errors.Is(err, context.Canceled) {
		if err != error(interrupted) && !errors.Is(err, context.Canceled) { //nolint:errorlint // is there anything besides?
			f.Say("error: %v", err)
		}
		return interrupted.ExitCode()
	}
	var usage *cli.UsageError
	var coded *cli.CodeError
	switch {
	case errors.As(err, &coded) && coded.Err == nil:
	case errors.As(err, &usage):
		f.Say("error: %v\nSee '%s --help' for usage.", err, cmd.CommandPath())
	default:
		f.Say("error: %v", err)
	}
	return cli.ExitCode(err)
}
