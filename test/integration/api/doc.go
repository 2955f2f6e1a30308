// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api tests what the schema of FencedLeases promises with no other component running: its rules, on every kind of
// write, on a real API server.
package api
