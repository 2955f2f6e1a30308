// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package run

import (
	"errors"
	"os"
	"os/exec"
)

// process stands for what there is not on this platform.
type process struct {
	id     int
	exited chan struct{}
}

func checkPlatform() error {
	return errors.New("run needs process groups and signals, which this platform does not have: use acquire and release")
}

func startProcess(*exec.Cmd) (*process, error) { return nil, checkPlatform() }

func (*process) signal(os.Signal) {}
func (*process) terminate()       {}
func (*process) kill()            {}
func (*process) gone() bool       { return true }
func (*process) exitCode() int    { return exitNotExecutable }

func passedOn(os.Signal) bool { return true }
func ends(os.Signal) bool     { return true }
