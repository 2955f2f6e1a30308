// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of what the command leaves behind, so that it can see and reap it. Where the
// kernel does not permit it, somebody else reaps.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// endWithParent lets the kernel kill the command if this process is killed: nobody would renew the lease for it.
func endWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = unix.SIGKILL }
