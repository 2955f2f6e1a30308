// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// OwnSignals is the annotation of commands that take signals themselves. A signal to end ends the context of all others.
const OwnSignals = "fencedlease.io/own-signals"

// Signals is where signals to this process come from.
type Signals interface {
	// Notify sends signals to the channel: those given, or all.
	Notify(c chan<- os.Signal, signals ...os.Signal)
	// Stop ends what Notify began.
	Stop(c chan<- os.Signal)
}

// ProcessSignals are the signals of the operating system.
type ProcessSignals struct{}

// Notify is signal.Notify.
func (ProcessSignals) Notify(c chan<- os.Signal, signals ...os.Signal) { signal.Notify(c, signals...) }

// Stop is signal.Stop.
func (ProcessSignals) Stop(c chan<- os.Signal) { signal.Stop(c) }

// InterruptedError is the cause of a context that a signal has ended.
type InterruptedError struct {
	// Signal is the one that came.
	Signal os.Signal
}

// Error names the signal.
func (e *InterruptedError) Error() string { return "interrupted by signal " + e.Signal.String() }

// ExitCode is 128 and the number of the signal, as shells have it.
func (e *InterruptedError) ExitCode() int {
	if number, ok := e.Signal.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return ExitInterrupted
}

// Interruptible returns a context that a signal to end ends, and what frees its resources.
func Interruptible(ctx context.Context, signals Signals) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := make(chan os.Signal, 1)
	signals.Notify(c, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case s := <-c:
			cancel(&InterruptedError{Signal: s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signals.Stop(c)
		cancel(nil)
		<-ended
	}
}
