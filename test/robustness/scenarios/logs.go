// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// keepLogs copies the logs of all processes into the folder of the history.
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
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
