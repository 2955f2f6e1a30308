// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// stopGrace is how long a process may take to end in order.
const stopGrace = 5 * time.Second

// insecure reads pages of the children, whose certificates are of no interest.
var insecure = &http.Client{Transport: &http.Transport{
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // processes of this machine, started by this one
}}

// child is a process with its log in a file.
type child struct {
	name    string
	cmd     *exec.Cmd
	logPath string
	done    chan struct{} // closed when the process is gone
	waitErr error         // how it ended, once done is closed
}

func startChild(dir, name string, environment []string, path string, args ...string) (*child, error) {
	c := &child{name: name, cmd: exec.Command(path, args...), logPath: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(c.logPath)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	c.cmd.Env = append(os.Environ(), environment...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = childAttributes()
	started := make(chan error, 1)
	go func() {
		defer close(c.done)
		defer func() { _ = log.Close() }()
		// The kernel ends a child together with the thread that started it, so this goroutine keeps its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.waitErr = c.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// ended returns an error with the end of the log if the process is gone.
func (c *child) ended() error {
	select {
	case <-c.done:
	default:
		return nil
	}
	const tail = 4 << 10
	log, err := os.ReadFile(c.logPath)
	return errors.Join(fmt.Errorf("%s has ended (%w): %s", c.name, errors.Join(c.waitErr), log[max(0, len(log)-tail):]), err)
}

// stop ends the process and returns when it is gone.
func (c *child) stop() error {
	if err := c.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(stopGrace):
	}
	if err := c.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-c.done
	return nil
}

func (c *child) signal(s syscall.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", s, c.name, err)
	}
	return nil
}
