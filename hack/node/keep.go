// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// keep starts the first process of the cluster, waits for a reason to end it, and then removes everything. It is outside of
// the cluster's namespaces, so that no mount of the cluster is in the way, and none can lead it astray.
func keep(p place) error {
	me, err := self()
	if err != nil {
		return err
	}
	if err := p.record("keeper", me); err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)

	first := exec.Command("/proc/self/exe", "init")
	first.Stdout, first.Stderr = os.Stdout, os.Stderr
	first.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		// If this process is killed, the cluster ends as well. That is tied to the thread, which therefore is kept.
		Pdeathsig: syscall.SIGKILL,
	}
	runtime.LockOSThread()
	if err := first.Start(); err != nil {
		return fmt.Errorf("start first process: %w", err)
	}
	init, err := identify(first.Process.Pid)
	if err == nil {
		err = p.record("init", init)
	}
	if err != nil {
		end <- syscall.SIGTERM
	}
	ended := make(chan error, 1)
	go func() { ended <- first.Wait() }()

	select {
	case err := <-ended:
		say("the first process has ended: %v", err)
	case s := <-end:
		say("ending: %v", s)
		_ = first.Process.Kill()
		<-ended
	case <-ownerEnds():
		say("ending: the process that the cluster was for has ended")
		_ = first.Process.Kill()
		<-ended
	}
	return p.clean()
}

// ownerEnds returns a channel that is closed when the owner has ended, if there is one.
func ownerEnds() <-chan struct{} {
	ends := make(chan struct{})
	if os.Getenv(ownerVariable) == "" {
		return ends
	}
	const owner = 4 // after standard input, output, error and the lock
	unix.CloseOnExec(owner)
	go func() {
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: owner, Events: unix.POLLIN}}, -1)
			if err == unix.EINTR {
				continue
			}
			close(ends)
			return
		}
	}()
	return ends
}
