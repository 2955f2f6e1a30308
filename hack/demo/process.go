// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// child is a process of the demo, with its log in a file.
type child struct {
	name    string
	cmd     *exec.Cmd
	logPath string
	done    chan struct{} // closed when the process is gone
}

// startChild starts a program. Its standard error goes to a log in dir, and its standard output too, if stdout is nil.
func startChild(dir, name string, stdin io.Reader, stdout io.Writer, environment []string, path string, args ...string) (*child, error) {
	logPath := filepath.Join(dir, name+".log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	cmd := exec.Command(path, args...) //nolint:noctx // it is ended in order, by stop
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, log
	if stdout == nil {
		cmd.Stdout = log
	}
	cmd.SysProcAttr = childAttributes()
	c := &child{name: name, cmd: cmd, logPath: logPath, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(c.done)
		defer func() { _ = log.Close() }()
		// The kernel ends a child together with the thread that started it, so this goroutine keeps its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its ProcessState
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

func (c *child) signal(s syscall.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", s, c.name, err)
	}
	return nil
}

// running reports whether the process is still there, paused or not.
func (c *child) running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// stop ends the process, also a paused one, and returns when it is gone.
func (c *child) stop(grace time.Duration) error {
	if !c.running() {
		return nil
	}
	if err := errors.Join(c.signal(syscall.SIGTERM), c.signal(syscall.SIGCONT)); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(grace):
	}
	if err := c.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-c.done
	return nil
}

// logTail returns the last lines of the log, for an error.
func (c *child) logTail() string {
	const lines = 15
	data, err := os.ReadFile(c.logPath)
	if err != nil {
		return err.Error()
	}
	if len(data) == 0 {
		return "its log is empty"
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return fmt.Sprintf("last lines of its log:\n%s", strings.Join(all[max(0, len(all)-lines):], "\n"))
}
