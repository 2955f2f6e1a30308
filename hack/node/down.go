// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// down ends the cluster, if it is up, and removes everything that it or an earlier run has left.
func down(p place) error {
	if keeper, running := p.recorded("keeper"); running {
		if err := keeper.signal(syscall.SIGTERM); err != nil {
			return err
		}
		if !keeper.await(30 * time.Second) {
			say("the keeper does not end, killing it")
			if err := keeper.signal(syscall.SIGKILL); err != nil {
				return err
			}
			keeper.await(10 * time.Second)
		}
	}
	// What is here still is of a keeper that was killed. Its death has killed the first process, and that all others.
	if init, running := p.recorded("init"); running {
		if err := init.signal(syscall.SIGKILL); err != nil {
			return err
		}
		if !init.await(30 * time.Second) {
			return fmt.Errorf("process %d does not end", init.pid)
		}
	}
	if _, err := os.Stat(string(p)); err == nil {
		lock, err := p.lock()
		if err != nil {
			return err
		}
		defer func() { _ = lock.Close() }()
	}
	return p.clean()
}

// clean removes files and control groups. No process of the cluster runs, so none of its mounts is there.
func (p place) clean() error {
	if err := p.copyLogs(); err != nil {
		say("copy logs: %v", err)
	}
	if err := removeGroups(); err != nil {
		return err
	}
	// Never reach into what is mounted below: it is not ours.
	mounted, err := p.mounts()
	if err != nil {
		return err
	}
	if len(mounted) > 0 {
		return fmt.Errorf("these are mounted and would be emptied, unmount them first: %s", strings.Join(mounted, ", "))
	}
	if err := os.RemoveAll(string(p)); err != nil {
		return fmt.Errorf("remove files: %w", err)
	}
	return nil
}

// mounts returns what is mounted below the folder, as this process sees it.
func (p place) mounts() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], string(p)+"/") {
			found = append(found, f[1])
		}
	}
	return found, nil
}

// copyLogs copies all logs to where the caller of up wanted them.
func (p place) copyLogs() error {
	to, err := os.ReadFile(p.file(logsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(to), 0o755); err != nil {
		return err
	}
	entries, err := filepath.Glob(p.file("logs", "*"))
	if err != nil || len(entries) == 0 {
		return err
	}
	out, err := exec.Command("cp", append([]string{"-r", "-t", string(to)}, entries...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// status tells whether the cluster is up, and what of it is there.
func status(p place) error {
	there := false
	for _, role := range []string{"keeper", "init"} {
		if i, running := p.recorded(role); running {
			there = true
			fmt.Printf("%s runs as process %d\n", role, i.pid)
		}
	}
	if _, err := os.Stat(string(p)); err == nil {
		there = true
		fmt.Printf("files are in %s\n", p)
	}
	found, err := groups()
	if err != nil {
		return err
	}
	if len(found) > 0 {
		there = true
		fmt.Printf("%d control groups are below %s/*/%s\n", len(found), groupRoot, groupName)
	}
	if !there {
		fmt.Println("nothing is there")
		return exitError(3)
	}
	return nil
}
