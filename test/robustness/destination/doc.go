// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package destination tests the promise of pkg/sqlfence under faults: leaders and ex-leaders of several generations write to
// a real PostgreSQL and repeat each other's operations, while answers to commits are lost, transactions pause, the server is
// killed, and the database and the lease are restored. What was committed is read from the database's own log, in the order of
// commits, and compared with what each call was told.
package destination
