// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// The kubectl plugin of FencedLease: kubectl fencedlease.
package main

import (
	"context"
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // credentials of every kind that a kubeconfig may name

	"github.com/fencedlease/fencedlease/internal/kubectl"
)

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(kubectl.Main(context.Background(), os.Args[1:], streams))
}
