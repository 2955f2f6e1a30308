//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence_test

const victimVariable = "FENCEDLEASE_TEST_VICTIM"

func beVictim(string) int { return 1 }
