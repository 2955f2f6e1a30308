// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import "syscall"

// sysProcAttr makes the kernel kill the process when this one ends, and keeps signals of the terminal away from it, so
// that an interrupted test still has an API server while it cleans up.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
