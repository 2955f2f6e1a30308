// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const groupRoot = "/sys/fs/cgroup"

// mounted returns the control-group hierarchies of both versions that are mounted where they usually are.
func mounted() (first, second []string, err error) {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[1] != groupRoot && filepath.Dir(f[1]) != groupRoot {
			continue
		}
		switch f[2] {
		case "cgroup":
			first = append(first, f[1])
		case "cgroup2":
			second = append(second, f[1])
		}
	}
	return first, second, nil
}

// hierarchies returns the roots of the hierarchies that the kubelet needs: one folder for each controller, or the one of
// version 2.
func hierarchies() ([]string, error) {
	first, second, err := mounted()
	switch {
	case err != nil:
		return nil, err
	case len(first) > 0:
		return first, nil
	case slices.Contains(second, groupRoot):
		return []string{groupRoot}, nil
	}
	return nil, errors.New("no control groups are mounted at " + groupRoot)
}

// makeGroups makes the control group of the pods in every hierarchy.
func makeGroups() error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		group := filepath.Join(root, groupName)
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make control group: %w", err)
		}
		// A group of this controller takes no process before it has processors and memory nodes.
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			all, err := os.ReadFile(filepath.Join(root, name))
			if err != nil || filepath.Base(root) != "cpuset" {
				continue
			}
			if err := os.WriteFile(filepath.Join(group, name), all, 0o644); err != nil {
				return fmt.Errorf("prepare control group: %w", err)
			}
		}
	}
	return nil
}

// groups returns the cluster's control groups, deepest first: those of makeGroups, and those that runc makes where both
// versions are mounted.
func groups() ([]string, error) {
	first, second, err := mounted()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, root := range slices.Concat(first, second) {
		err := filepath.WalkDir(filepath.Join(root, groupName), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && d.IsDir() {
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Reverse(found)
	return found, nil
}

// removeGroups removes the cluster's control groups. Processes that are being ended hold theirs for a moment.
func removeGroups() error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		all, err := groups()
		if err != nil {
			return err
		}
		busy := ""
		for _, group := range all {
			if err := syscall.Rmdir(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
				busy = fmt.Sprintf("%s: %v", group, err)
			}
		}
		switch {
		case busy == "":
			return nil
		case time.Now().After(deadline):
			return errors.New("remove control groups: " + busy)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
