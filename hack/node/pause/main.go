// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Pause is the first process of every pod: it holds the pod's namespaces and does nothing else.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
}
