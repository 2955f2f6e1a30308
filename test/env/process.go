// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// errNotRunning is the answer to a signal for a process that has ended.
var errNotRunning = errors.New("process is not running")

// process is a program that can be started again with the same arguments.
type process struct {
	name    string
	path    string
	args    []string
	dir     string
	logPath string
	// environ replaces the environment of this process, and input gives the program a standard input.
	environ []string
	input   bool

	mu    sync.Mutex
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{}
}

// start starts the program. It fails if it runs already.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return fmt.Errorf("start %s: it runs already", p.name)
	}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", p.name, err)
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir = p.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = sysProcAttr()
	cmd.Env = p.environ
	var stdin io.WriteCloser
	if p.input {
		if stdin, err = cmd.StdinPipe(); err != nil {
			return errors.Join(fmt.Errorf("make standard input of %s: %w", p.name, err), log.Close())
		}
	}

	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = log.Close() }()
		// The kernel ends a child when the thread that started it ends, so this goroutine keeps its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		// How it ended is in its log; the caller asks whether it runs.
		_ = cmd.Wait()
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.done, p.stdin = cmd, done, stdin
	return nil
}

// running tells whether the program runs. The caller holds mu.
func (p *process) running() bool {
	if p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ended returns a channel that is closed when the program has ended.
func (p *process) ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// isRunning tells whether the program runs, paused or not.
func (p *process) isRunning() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// signal sends a signal to the program.
func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return fmt.Errorf("signal %s: %w", p.name, errNotRunning)
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	if s != syscall.SIGSTOP {
		return nil
	}
	if err := AwaitStopped(p.cmd.Process.Pid); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	return nil
}

// stop ends the program, also if it is paused: in order if it manages that within grace, else by killing it. It returns
// when the process is gone.
func (p *process) stop(grace time.Duration) error {
	done := p.ended()
	if done == nil || !p.isRunning() {
		return nil
	}
	if grace > 0 {
		if err := p.signal(syscall.SIGTERM); err != nil && !errors.Is(err, errNotRunning) {
			return err
		}
		// A paused process gets the signal above when it goes on.
		if err := p.signal(syscall.SIGCONT); err != nil && !errors.Is(err, errNotRunning) {
			return err
		}
		select {
		case <-done:
			return nil
		case <-time.After(grace):
		}
	}
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, errNotRunning) {
		return err
	}
	<-done
	return nil
}

// logTail returns the end of the program's log.
func (p *process) logTail() string {
	const size = 4 << 10
	data, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	if len(data) > size {
		data = data[len(data)-size:]
	}
	return fmt.Sprintf("end of %s:\n%s", filepath.Base(p.logPath), data)
}
