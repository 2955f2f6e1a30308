// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// raceReport begins a report of Go's race detector, with which actors are built if the test is.
var raceReport = []byte("WARNING: DATA RACE")

// keepLogs copies the logs of all processes into the folder of the history, and fails if one tells of a data race.
func (w *World) keepLogs() error {
	paths, err := filepath.Glob(filepath.Join(w.cluster.Dir(), "*.log"))
	if err != nil {
		return fmt.Errorf("list logs: %w", err)
	}
	var errs []error
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(w.options.Dir, filepath.Base(path)), data, 0o600)
		}
		if bytes.Contains(data, raceReport) {
			err = errors.Join(err, fmt.Errorf("%s tells of a data race", filepath.Base(path)))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
