// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// TestTwoBuildsGiveTheSameArchive builds the manager's image by the script that make image-archive runs, in two folders.
func TestTwoBuildsGiveTheSameArchive(t *testing.T) {
	// The second is a copy of the first, so that both have the same sources whoever writes to the work tree meanwhile.
	first, second := t.TempDir(), t.TempDir()
	for _, name := range []string{"api", "cmd", "internal", "pkg", "hack/image", "hack/make"} {
		if err := os.CopyFS(filepath.Join(first, name), os.DirFS(filepath.Join("../..", name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := os.WriteFile(filepath.Join(first, name), read(t, filepath.Join("../..", name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(second, os.DirFS(first)); err != nil {
		t.Fatal(err)
	}
	build := func(folder string) []byte {
		output := filepath.Join(folder, "image.tar")
		cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(folder, "hack/make/image-archive.sh"), tag, output, "linux/"+runtime.GOARCH)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return read(t, output)
	}
	if !bytes.Equal(build(first), build(second)) {
		t.Error("two builds of the same sources give different archives")
	}
}
