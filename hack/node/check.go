// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// foundations are what the cluster stands on, and what some machines do not allow, such as many containers.
var foundations = []step{
	{"make mounts", makeMounts},
	{"make network", makeNetwork},
	{"make control groups", func(place) error { return makeGroups() }},
}

// step is a part of the start of the first process.
type step struct {
	what string
	do   func(place) error
}

func take(p place, steps []step) error {
	if os.Getpid() != 1 {
		return errors.New("this command is run by up and check alone")
	}
	for _, s := range steps {
		if err := s.do(p); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}

// check returns an error that says what this machine lacks to run the cluster. It makes the foundations in namespaces of their
// own and removes them again; a cluster that is up is left alone.
func check(ctx context.Context, p place, install bool) (err error) {
	if err := needPackages(ctx, install); err != nil {
		return err
	}
	if _, running := p.recorded("keeper"); running {
		return nil
	}
	if err := down(p); err != nil {
		return fmt.Errorf("remove what an earlier run has left: %w", err)
	}
	if err := os.MkdirAll(string(p), 0o700); err != nil {
		return err
	}
	lock, err := p.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.clean(), lock.Close()) }()

	// See keep for the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	first := exec.CommandContext(ctx, "/proc/self/exe", "foundations")
	first.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL,
	}
	if out, err := first.CombinedOutput(); err != nil {
		return fmt.Errorf("this machine cannot hold the cluster: %w: %s", err, out)
	}
	return nil
}
