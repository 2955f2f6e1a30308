// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

// SeedVariable is the environment variable that repeats the choices of a run.
const SeedVariable = "ROBUSTNESS_SEED"

// NewSeed returns the seed that SeedVariable names, or a random one if it is not set.
func NewSeed() (uint64, error) {
	text := os.Getenv(SeedVariable)
	if text == "" {
		return rand.Uint64(), nil //nolint:gosec // it is printed, and no secret
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", SeedVariable, err)
	}
	return seed, nil
}

// Wait waits for some time. It returns false when ctx ends first.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Sleep is Wait that returns why ctx has ended.
func Sleep(ctx context.Context, d time.Duration) error {
	if !Wait(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
