// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"io"
	"syscall"
	"time"
)

// Program is a process of the test's own beside the control plane. It ends with the environment.
type Program struct {
	process *process
}

// NewProgram returns a program that is not started yet. Its log is <name>.log in Dir. A nil environment is this process's.
func (e *Environment) NewProgram(name, path string, environ []string, args ...string) *Program {
	p := &Program{process: &process{
		name: name, path: path, args: args, dir: e.dir, logPath: e.file(name + ".log"), environ: environ, input: true,
	}}
	e.programs = append(e.programs, p)
	return p
}

// Start starts the program, also again.
func (p *Program) Start() error { return p.process.start() }

// Say writes a line to its standard input.
func (p *Program) Say(line string) error {
	p.process.mu.Lock()
	defer p.process.mu.Unlock()
	if !p.process.running() {
		return fmt.Errorf("write to %s: %w", p.process.name, errNotRunning)
	}
	if _, err := io.WriteString(p.process.stdin, line+"\n"); err != nil {
		return fmt.Errorf("write to %s: %w", p.process.name, err)
	}
	return nil
}

// CloseInput ends its standard input.
func (p *Program) CloseInput() error {
	p.process.mu.Lock()
	defer p.process.mu.Unlock()
	if p.process.stdin == nil {
		return nil
	}
	return p.process.stdin.Close()
}

// Pause stops it in its tracks, and Continue lets it go on.
func (p *Program) Pause() error { return p.process.signal(syscall.SIGSTOP) }

// Continue lets it go on.
func (p *Program) Continue() error { return p.process.signal(syscall.SIGCONT) }

// Kill ends it at once, and returns when it is gone.
func (p *Program) Kill() error { return p.process.stop(0) }

// Stop ends it, in order if that takes no longer than grace.
func (p *Program) Stop(grace time.Duration) error { return p.process.stop(grace) }

// Ended returns a channel that is closed when it has ended.
func (p *Program) Ended() <-chan struct{} { return p.process.ended() }

// LogPath returns the path of its log.
func (p *Program) LogPath() string { return p.process.logPath }
