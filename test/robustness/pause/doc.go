// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pause is the table of all pauses: a write of the leader A stops at one step of its way, B takes the lease over
// and does what its strategy says, and the write goes on. Each cell of the table says how the write must end, with which
// cause, and what is stored afterwards.
//
// The table runs against any System that hands out leases and fences writes, or does not: the product, and controls that
// must fail it. All cells of one strategy share a lease and run at the same time, each on an object of its own.
package pause
