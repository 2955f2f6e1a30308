//go:build !linux

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import "time"

// Now returns the wall clock's time: the test needs Linux for processes that share a monotonic clock.
func Now() int64 { return time.Now().UnixNano() }
