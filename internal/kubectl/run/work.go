// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/fencedlease/fencedlease/pkg/leader"
)

const (
	// pollGroup is how often it is looked whether a group has gone.
	pollGroup = 20 * time.Millisecond
	// unkillable is how long killed processes are waited for. Those that the kernel does not end by then hang in it.
	unkillable = 5 * time.Second
	// streamDelay bounds the copying of streams that are no files once the command has ended: what it has left behind may
	// hold them open.
	streamDelay = time.Second
)

// work runs the command in the term and returns an *exitError with its exit code when its whole group has gone.
func (o *Options) work(ctx context.Context, term *leader.Term, g *group, r *renewals) error {
	environment, cleanup, err := o.environment(ctx, term)
	if err != nil {
		return err
	}
	defer cleanup()
	cmd := exec.Command(o.command[0], o.command[1:]...) //nolint:noctx // its end is signalled, and it is what the caller asked for
	cmd.Env = environment
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.In, o.Out, o.ErrOut
	cmd.WaitDelay = streamDelay
	p, err := g.start(cmd)
	if err != nil {
		return err
	}
	s := supervision{options: o, term: term, process: p, renewals: r}
	s.run(ctx)
	g.forget()
	return &exitError{code: p.exitCode()}
}

// supervision waits for the end of a group, and brings it about.
type supervision struct {
	options  *Options
	term     *leader.Term
	process  *process
	renewals *renewals

	// told says that the group was told to end, killAt is when it is killed unless that is zero.
	told   bool
	killAt time.Time
}

// run returns when the whole group has gone.
func (s *supervision) run(ctx context.Context) {
	exited, lost, cancelled := s.process.exited, s.term.Done(), ctx.Done()
	tick := s.options.Clock.NewTicker(pollGroup)
	defer tick.Stop()
	for {
		select {
		case <-exited:
			exited = nil
			if !s.process.gone() && !s.told {
				s.options.Say("The command has ended and left processes behind in its group: ending them.")
				s.end(s.options.Clock.Now().Add(s.options.Grace))
			}
		case <-lost:
			lost = nil
			s.lose()
		case <-cancelled:
			cancelled = nil
			// By the caller. A loss ends the context as well, and signals are passed on as they are.
			if s.term.Err() == nil {
				s.tell()
			}
		case <-tick.C():
		}
		now := s.options.Clock.Now()
		if s.told && !s.killAt.IsZero() && !now.Before(s.killAt) {
			s.process.kill()
		}
		if exited == nil && s.process.gone() {
			return
		}
		if exited == nil && !s.killAt.IsZero() && now.Sub(s.killAt) > unkillable {
			s.options.Say("Warning: processes of the group %d do not end, although they were killed.", s.process.id)
			return
		}
	}
}

// lose tells the group to end as the term has ended, and sets when it is killed.
func (s *supervision) lose() {
	err := s.term.Err()
	lost := &leader.LostError{}
	expired := errors.As(err, &lost) && lost.Expired
	now := s.options.Clock.Now()
	at := s.renewals.killAt(now, time.Duration(s.options.lease.Spec.LeaseDurationSeconds)*time.Second, expired)
	s.options.Say("Ending the command: %v.", err)
	s.end(at)
}

// end tells the group to end and kills it at the time, or at an earlier one that was set before.
func (s *supervision) end(at time.Time) {
	s.tell()
	if s.killAt.IsZero() || at.Before(s.killAt) {
		s.killAt = at
	}
}

// tell sends the signal to end. A group that is stopped gets it when it goes on.
func (s *supervision) tell() {
	s.told = true
	s.process.terminate()
}

// environment returns the environment of the command, and what removes its files.
func (o *Options) environment(ctx context.Context, term *leader.Term) ([]string, func(), error) {
	dir, err := os.MkdirTemp("", "fencedlease-run-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a folder for the kubeconfig of the term: %w", err)
	}
	remove := func() { _ = os.RemoveAll(dir) }
	variables := termVariables(term.Info())
	kubeconfig, release, err := o.writeKubeconfig(ctx, dir, term)
	if err != nil {
		remove()
		return nil, nil, err
	}
	cleanup := func() {
		release()
		remove()
	}
	if kubeconfig != "" {
		variables["KUBECONFIG"] = kubeconfig
	}
	return withVariables(o.Environ(), variables), cleanup, nil
}
