// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// sysProcAttr makes the kernel kill the process when this one ends, and keeps signals of the terminal away from it, so
// that an interrupted test still has an API server while it cleans up.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// AwaitStopped returns when every thread of a process that was sent SIGSTOP has stopped. Until then it may still act: on a
// busy machine the signal reaches a thread that runs on another processor late.
func AwaitStopped(pid int) error {
	err := wait.PollUntilContextTimeout(context.Background(), time.Millisecond, startTimeout, true, func(context.Context) (bool, error) { //nolint:forbidigo // bounded by its time
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/stat", pid))
		if err != nil || len(threads) == 0 {
			return false, errors.Join(err, os.ErrProcessDone)
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			// pid (name) state ...
			if _, state, ok := strings.Cut(string(stat), ") "); err != nil || !ok || state[0] != 'T' {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait until process %d has stopped: %w", pid, err)
	}
	return nil
}
