// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history is what a run of the robustness test leaves behind: the operations of all clients, the states that the
// store committed, and the faults. All times are nanoseconds of the machine's monotonic clock, which all processes share.
//
// A history is a folder:
//   - run.json says which run it was: its seed, the leases, the epochs of the store;
//   - ops-*.jsonl has the operations, a file for each process: a line when one is sent and a line when it has returned, so
//     that one whose process was killed in between is known to have been sent;
//   - truth.jsonl has the committed states in the order of their revisions;
//   - faults.jsonl has the faults.
package history
