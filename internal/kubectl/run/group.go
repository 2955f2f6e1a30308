// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
)

// group is the process group of the command, and where signals go: while there is no command yet, one to end ends the waiting;
// afterwards each goes to the whole group.
type group struct {
	signals  cli.Signals
	incoming chan os.Signal
	stop     chan struct{}
	loop     sync.WaitGroup

	mu sync.Mutex
	// cancel ends the waiting.
	cancel context.CancelCauseFunc
	// interrupted is the signal that ended the waiting, or nil.
	interrupted *cli.InterruptedError
	// process is the command, or nil before it is started and after it has gone.
	process *process
}

// incomingSignals is how many signals may wait.
const incomingSignals = 64

func newGroup(signals cli.Signals, cancel context.CancelCauseFunc) *group {
	g := &group{signals: signals, incoming: make(chan os.Signal, incomingSignals), stop: make(chan struct{}), cancel: cancel}
	if signals != nil {
		signals.Notify(g.incoming)
	}
	g.loop.Go(func() {
		for {
			select {
			case s := <-g.incoming:
				g.take(s)
			case <-g.stop:
				return
			}
		}
	})
	return g
}

// close ends the passing on of signals.
func (g *group) close() {
	if g.signals != nil {
		g.signals.Stop(g.incoming)
	}
	close(g.stop)
	g.loop.Wait()
}

// take passes a signal on.
func (g *group) take(s os.Signal) {
	if !passedOn(s) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.process != nil:
		g.process.signal(s)
	case ends(s) && g.interrupted == nil:
		g.interrupted = &cli.InterruptedError{Signal: s}
		g.cancel(g.interrupted)
	}
}

// start starts the command, unless a signal has ended the waiting.
func (g *group) start(cmd *exec.Cmd) (*process, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.interrupted != nil {
		return nil, g.interrupted
	}
	p, err := startProcess(cmd)
	if err != nil {
		return nil, notRun(cmd, err)
	}
	g.process = p
	return p, nil
}

// forget takes note that the group has gone, so that no signal goes to another that gets its number.
func (g *group) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.process = nil
}

// Exit codes of commands that cannot be run, as shells have them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

func notRun(cmd *exec.Cmd, err error) error {
	code := exitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		code = exitNotFound
	}
	return &exitError{code: code, err: errors.Join(errors.New("cannot run "+cmd.Args[0]), err)}
}
