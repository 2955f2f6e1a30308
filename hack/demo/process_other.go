//go:build !linux

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os/exec"
	"strconv"
	"syscall"
)

// childAttributes puts a child into a group of its own, so that an interrupt from the terminal reaches the demo alone,
// which then ends its children in order.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// endWithParent does nothing where the kernel tells nobody that a parent has ended.
func endWithParent() {}

// isStopped reports whether a process is paused.
func isStopped(ctx context.Context, pid int) (bool, error) {
	state, err := exec.CommandContext(ctx, "ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return bytes.HasPrefix(bytes.TrimSpace(state), []byte("T")), err
}
