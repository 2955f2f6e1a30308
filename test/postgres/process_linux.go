// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package postgres

import "syscall"

// sysProcAttr makes the kernel kill the process when this one ends, and keeps signals of the terminal away from it.
func sysProcAttr(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: as}
}
