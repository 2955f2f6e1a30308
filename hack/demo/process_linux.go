// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"syscall"
)

// childAttributes puts a child into a group of its own, so that an interrupt from the terminal reaches the demo alone,
// which then ends its children in order; and makes the kernel kill the child if the demo is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// endWithParent asks for SIGTERM when the parent ends: go run does not hand signals on.
func endWithParent() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0)
}

// isStopped reports whether a process is paused. The state in /proc follows the name, which is in parentheses.
func isStopped(_ context.Context, pid int) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false, err
	}
	return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T ")), nil
}
