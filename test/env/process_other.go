//go:build !linux

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import "syscall"

// sysProcAttr leaves the process in the group of this one, so that an interrupt from the terminal ends both.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// AwaitStopped does not wait where the state of threads cannot be read.
func AwaitStopped(int) error { return nil }
