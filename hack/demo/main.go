// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// The demo: a paused leader's late write on a real API server, first with client-go's leader election, then fenced.
//
// It starts etcd, kube-apiserver and kube-controller-manager, installs the built manifests, runs the manager's binary
// with the rights of its ServiceAccount, and plays both stories with two worker processes each. It exits with 1 if a story
// goes otherwise than it should, and leaves neither processes nor files behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// patience bounds the whole demo; it takes a third of that on two cores.
const patience = 3 * time.Minute

type options struct {
	manager, install, kubectl, worker string
	plainOnly                         bool
}

func main() {
	// Signals for the end of the parent are tied to the thread that asks for them.
	runtime.LockOSThread()
	endWithParent()
	// A closed standard output is a reason to clean up, not to end at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()

	var o options
	flag.StringVar(&o.manager, "manager", "bin/manager", "The manager's binary.")
	flag.StringVar(&o.install, "install", "dist/install.yaml", "The manifests to install.")
	flag.StringVar(&o.kubectl, "kubectl", "", "kubectl. Empty means the one beside the API server.")
	flag.StringVar(&o.worker, "worker", "", "The worker's binary. Empty means to build hack/demo/worker.")
	flag.BoolVar(&o.plainOnly, "plain-only", false, "Play the story without fencing only; needs no manager and no manifests.")
	flag.Parse()
	os.Exit(play(ctx, o, os.Stdout, os.Stderr))
}

// play runs the demo and returns its exit code.
func play(ctx context.Context, o options, out, errOut io.Writer) int {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := run(limited, o, newTimeline(out), errOut)
	var differs *differsError
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(errOut, "demo: interrupted")
		return 130
	case errors.As(err, &differs):
		_, _ = fmt.Fprintf(errOut, "demo: the story went otherwise: %v\n", err)
	default:
		_, _ = fmt.Fprintf(errOut, "demo: %v\n", err)
	}
	return 1
}

func run(ctx context.Context, o options, say *timeline, errOut io.Writer) error {
	c, err := newCluster(o)
	if err != nil {
		return err
	}
	defer func() {
		if err := c.stop(); err != nil {
			_, _ = fmt.Fprintf(errOut, "demo: clean up: %v\n", err)
		}
	}()
	if err := c.start(ctx, say); err != nil {
		return err
	}
	if !o.plainOnly {
		if err := c.install(ctx, say); err != nil {
			return err
		}
	}
	if err := c.playPlain(ctx, say); err != nil {
		return fmt.Errorf("story 1: %w", err)
	}
	if o.plainOnly {
		return nil
	}
	if err := c.playFenced(ctx, say); err != nil {
		return fmt.Errorf("story 2: %w", err)
	}
	return nil
}
