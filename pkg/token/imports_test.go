// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package token_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Users import this package into clients of every kind: it brings nothing along.
func TestDependsOnTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	const self = "github.com/fencedlease/fencedlease/pkg/token"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", self).Output()
	if err != nil {
		t.Fatalf("list dependencies: %v", err)
	}
	for _, dependency := range strings.Fields(string(out)) {
		if dependency != self {
			t.Errorf("depends on %s", dependency)
		}
	}
	if !strings.Contains(string(out), self) {
		t.Errorf("the list of dependencies does not hold the package itself:\n%s", out)
	}
}
