// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import "golang.org/x/sys/unix"

// Now returns the time of the machine's monotonic clock, which has one zero for all processes.
func Now() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0 // the clock exists on every Linux
	}
	return now.Nano()
}
