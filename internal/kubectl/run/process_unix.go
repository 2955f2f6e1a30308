// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package run

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is the command with its process group.
type process struct {
	// id is the number of the group and of the command itself.
	id int
	// exited is closed when the command itself has ended.
	exited chan struct{}

	cmd *exec.Cmd
	// terminal is the file descriptor of the terminal that the group was given, or -1.
	terminal int
}

func checkPlatform() error { return nil }

// startProcess starts the command in a process group of its own. A terminal that this process has in the foreground is given
// to the group, so that it can read from it and gets its signals.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, exited: make(chan struct{}), terminal: foreground(cmd.Stdin)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.terminal >= 0 {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, p.terminal
	}
	adoptOrphans()
	endWithParent(cmd.SysProcAttr)
	started := make(chan error, 1)
	go func() {
		// The kernel ends a child when the thread that started it ends, so this goroutine keeps its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.id = cmd.Process.Pid
		started <- nil
		_ = cmd.Wait() // how it ended is in ProcessState
		p.takeTerminalBack()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// foreground returns the file descriptor of a terminal that this process has in the foreground, or -1.
func foreground(in io.Reader) int {
	file, ok := in.(*os.File)
	if !ok {
		return -1
	}
	fd := int(file.Fd())
	if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return -1
	}
	return fd
}

// takeTerminalBack puts this process into the foreground of its terminal again. A process in the background that does so is
// stopped by SIGTTOU unless it ignores that.
func (p *process) takeTerminalBack() {
	if p.terminal < 0 {
		return
	}
	signal.Ignore(unix.SIGTTOU)
	defer signal.Reset(unix.SIGTTOU)
	_ = unix.IoctlSetPointerInt(p.terminal, unix.TIOCSPGRP, unix.Getpgrp()) // a terminal that is gone needs no foreground
}

// signal sends a signal to the whole group. One that has gone needs none.
func (p *process) signal(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		_ = unix.Kill(-p.id, number)
	}
}

// terminate tells the whole group to end, also if it is stopped.
func (p *process) terminate() {
	p.signal(unix.SIGTERM)
	p.signal(unix.SIGCONT)
}

// kill ends the whole group.
func (p *process) kill() { p.signal(unix.SIGKILL) }

// gone reports whether no process of the group is left. It must not be asked before the command itself has ended.
func (p *process) gone() bool {
	for {
		// Orphans of the group that this process has adopted.
		reaped, err := unix.Wait4(-p.id, nil, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) || reaped > 0 {
			continue
		}
		break
	}
	return errors.Is(unix.Kill(-p.id, 0), unix.ESRCH)
}

// exitCode is that of the command, or 128 and the number of the signal that ended it.
func (p *process) exitCode() int {
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// passedOn reports whether a signal is meant for the command: not those that the runtime and the kernel send to this process
// about its own affairs.
func passedOn(s os.Signal) bool {
	return !slices.Contains([]os.Signal{unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGPROF, unix.SIGTTIN, unix.SIGTTOU}, s)
}

// ends reports whether a signal ends a process that does not mind it.
func ends(s os.Signal) bool {
	return slices.Contains([]os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM}, s)
}
