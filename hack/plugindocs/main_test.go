// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPageIsUpToDate(t *testing.T) {
	want, err := os.ReadFile("../../docs/kubectl-fencedlease.md")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := write(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("docs/kubectl-fencedlease.md, to be written anew by make plugin-docs (-want +got):\n%s", diff)
	}
}
