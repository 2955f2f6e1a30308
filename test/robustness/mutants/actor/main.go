// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Command actor does what a holder does with the packages that holders import, once, as a process of its own.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fencedlease/fencedlease/internal/possession"
)

// usage: actor release <namespace> <name> <generation> <term> <holder>, with KUBECONFIG set.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 6 || args[0] != "release" {
		return fmt.Errorf("arguments %q: want release <namespace> <name> <generation> <term> <holder>", args)
	}
	generation, err := strconv.ParseInt(args[3], 10, 64)
	if err != nil {
		return fmt.Errorf("read generation: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return fmt.Errorf("load kubeconfig: %w", err)
	}
	rest, err := possession.NewClient(config)
	if err != nil {
		return err
	}
	term := possession.Term{Namespace: args[1], Name: args[2], Generation: generation, ID: args[4], Holder: args[5]}
	_, err = possession.Client{REST: rest, Namespace: args[1], Name: args[2]}.PatchStatus(ctx, possession.Release(term))
	return err
}
