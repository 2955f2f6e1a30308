// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package run

import "syscall"

// adoptOrphans does nothing: the first process of the system reaps what the command leaves behind.
func adoptOrphans() {}

// endWithParent does nothing: only Linux tells a process of its parent's end.
func endWithParent(*syscall.SysProcAttr) {}
