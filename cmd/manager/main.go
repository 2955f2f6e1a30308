// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// The manager of FencedLease: webhook and controllers.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/internal/manager"
)

func main() {
	os.Exit(manager.Main(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, os.Stderr))
}
