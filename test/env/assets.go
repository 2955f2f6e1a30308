// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// moduleRoot returns the nearest folder above the current one that holds go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find current folder: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find module: no go.mod in the current folder or above")
		}
		dir = parent
	}
}

// findAssets returns the folder with the programs of the control plane. It builds them if there is none yet.
func findAssets(ctx context.Context, root string) (string, error) {
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		return assets, nil
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "hack", "controlplane", "build.sh"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build control plane: %w", err)
	}
	return strings.TrimSpace(out.String()), nil
}
