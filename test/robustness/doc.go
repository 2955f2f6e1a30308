// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package robustness tests the promise under faults: leaders and ex-leaders write by every verb and carrier to a real
// control plane with the product, while parts of it are paused, killed, cut off and turned back, and the history of what
// they did and of what the store committed is checked afterwards. See README.md.
package robustness
