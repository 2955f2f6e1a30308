// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

const (
	// BinariesVariable names a folder with initdb and postgres.
	BinariesVariable = "FENCEDLEASE_POSTGRES_BIN"
	// SkipVariable skips tests that need a server, unless CI is set.
	SkipVariable = "FENCEDLEASE_SKIP_POSTGRES"

	debianFolders = "/usr/lib/postgresql/*/bin"
)

var errNotInstalled = errors.New("PostgreSQL is not installed: apt-get install --no-install-recommends postgresql, " +
	"or set " + BinariesVariable + " to the folder of initdb and postgres, or " + SkipVariable + "=1 to skip these tests")

// Skipped reports whether the user wants no test that needs a server.
func Skipped() bool { return os.Getenv(SkipVariable) != "" && os.Getenv("CI") == "" }

// binaries returns the folder of initdb and postgres.
func binaries() (string, error) {
	if folder := os.Getenv(BinariesVariable); folder != "" {
		if !installed(folder) {
			return "", fmt.Errorf("%s is %s, where initdb or postgres is missing", BinariesVariable, folder)
		}
		return folder, nil
	}
	folders, err := filepath.Glob(debianFolders)
	if err != nil {
		return "", fmt.Errorf("look for PostgreSQL: %w", err)
	}
	newest, best := "", -1
	for _, folder := range folders {
		version, err := strconv.Atoi(filepath.Base(filepath.Dir(folder)))
		if err == nil && version > best && installed(folder) {
			newest, best = folder, version
		}
	}
	if newest != "" {
		return newest, nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		// Other distributions have links there; the server is beside what they point to.
		if path, err = filepath.EvalSymlinks(path); err == nil && installed(filepath.Dir(path)) {
			return filepath.Dir(path), nil
		}
	}
	return "", errNotInstalled
}

func installed(folder string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(folder, name)); err != nil {
			return false
		}
	}
	return true
}
