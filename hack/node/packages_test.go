// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestInstalledServicesAreNotStarted: packages are told so while they are installed, and the machine is as before afterwards.
func TestInstalledServicesAreNotStarted(t *testing.T) {
	policy, failure := filepath.Join(t.TempDir(), "policy-rc.d"), errors.New("no such package")
	for _, want := range []error{nil, failure} {
		err := withoutStarts(policy, func() error {
			var exit *exec.ExitError
			if err := exec.CommandContext(t.Context(), policy, "containerd", "start").Run(); !errors.As(err, &exit) || exit.ExitCode() != 101 {
				t.Errorf("the policy answers %v", err)
			}
			return want
		})
		if !errors.Is(err, want) {
			t.Errorf("want %v, got %v", want, err)
		}
		if _, err := os.Stat(policy); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the policy is left: %v", err)
		}
	}

	const own = "#!/bin/sh\nexit 0\n"
	if err := os.WriteFile(policy, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := withoutStarts(policy, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(policy); err != nil || string(text) != own {
		t.Errorf("the machine's own policy is %q, %v", text, err)
	}
}
