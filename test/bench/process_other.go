//go:build !linux

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "syscall"

// childAttributes puts a child into a group of its own, so that an interrupt from the terminal reaches this process alone,
// which then ends its children.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
