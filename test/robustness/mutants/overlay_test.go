// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants_test

import (
	"path/filepath"
	"testing"

	"github.com/fencedlease/fencedlease/test/robustness/mutants"
)

func TestEveryReplacementMatchesOnce(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range mutants.All() {
		if names[m.Name] {
			t.Errorf("two mutants are named %q", m.Name)
		}
		names[m.Name] = true
		if len(m.Edits) == 0 || m.Check == "" {
			t.Errorf("mutant %q changes nothing or has no check", m.Name)
		}
		if _, err := m.Mutate(root); err != nil {
			t.Error(err)
		}
	}
	if len(names) < 14 {
		t.Errorf("there are %d mutants only", len(names))
	}
}
