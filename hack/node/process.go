// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// identity is a process that is recognised also when its number has been given to another one since.
type identity struct {
	pid   int
	start string
}

// self returns this process.
func self() (identity, error) { return identify(os.Getpid()) }

func identify(pid int) (identity, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return identity{}, err
	}
	// pid (name) state ...; the name may hold anything. Field 22 is the start time.
	_, rest, _ := cutLast(string(stat), ") ")
	f := strings.Fields(rest)
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return identity{}, os.ErrProcessDone
	}
	return identity{pid: pid, start: f[19]}, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func (i identity) String() string { return strconv.Itoa(i.pid) + " " + i.start }

// running tells whether the process is there still.
func (i identity) running() bool {
	now, err := identify(i.pid)
	return err == nil && now == i
}

func (i identity) signal(s syscall.Signal) error {
	if !i.running() {
		return nil
	}
	if err := syscall.Kill(i.pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", i.pid, err)
	}
	return nil
}

// await returns whether the process has ended within a time.
func (i identity) await(d time.Duration) bool {
	for deadline := time.Now().Add(d); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if !i.running() {
			return true
		}
	}
	return !i.running()
}

// record writes down who a process of the cluster is.
func (p place) record(role string, i identity) error {
	return p.write(role+".pid", []byte(i.String()))
}

// recorded returns a process of the cluster if it runs.
func (p place) recorded(role string) (identity, bool) {
	data, err := os.ReadFile(p.file(role + ".pid"))
	if err != nil {
		return identity{}, false
	}
	number, start, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	pid, err := strconv.Atoi(number)
	i := identity{pid, start}
	return i, err == nil && pid > 1 && i.running()
}
