// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// daemon is a program that is started when what it needs is there, and again whenever it ends.
type daemon struct {
	name, path string
	args       []string
	needs      []func() error
}

// restartPause keeps a program that cannot run from using up the processor.
const restartPause = time.Second

// supervisor starts programs and reaps every process of the namespace: also those that others have left to it.
type supervisor struct {
	p     place
	mu    sync.Mutex
	exits map[int]chan syscall.WaitStatus
}

// supervise runs the programs until it is told to end.
func supervise(p place, all []daemon) error {
	s := &supervisor{p: p, exits: map[int]chan syscall.WaitStatus{}}
	end, children := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(children, syscall.SIGCHLD)
	for _, d := range all {
		go s.keepUp(d)
	}
	ready := make(chan error, 1)
	go func() { ready <- awaitNode(p) }()
	for {
		select {
		case <-end:
			return errors.New("told to end")
		case err := <-ready:
			if err == nil {
				err = p.write(readyFile, nil)
			}
			if err != nil {
				return err
			}
		case <-children:
			s.reap()
		}
	}
}

func (s *supervisor) keepUp(d daemon) {
	for {
		for _, need := range d.needs {
			for need() != nil {
				time.Sleep(50 * time.Millisecond)
			}
		}
		exit, err := s.start(d)
		if err != nil {
			say("%v", err)
			time.Sleep(restartPause)
			continue
		}
		status := <-exit
		say("%s has ended with exit code %d, signal %d; starting it again", d.name, status.ExitStatus(), status.Signal())
		time.Sleep(restartPause)
	}
}

func (s *supervisor) start(d daemon) (<-chan syscall.WaitStatus, error) {
	log, err := os.OpenFile(s.p.file("logs", d.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	// While it is held no child is reaped: this one must be known before.
	s.mu.Lock()
	defer s.mu.Unlock()
	process, err := os.StartProcess(d.path, append([]string{d.path}, d.args...), &os.ProcAttr{
		Dir: string(s.p), Env: os.Environ(), Files: []*os.File{nil, log, log}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", d.name, err)
	}
	exit := make(chan syscall.WaitStatus, 1)
	s.exits[process.Pid] = exit
	return exit, errors.Join(s.p.write("pids/"+d.name, []byte(strconv.Itoa(process.Pid))), process.Release())
}

// reap takes leave of all children that have ended.
func (s *supervisor) reap() {
	for {
		s.mu.Lock()
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if exit, known := s.exits[pid]; known && err == nil {
			delete(s.exits, pid)
			exit <- status
		}
		s.mu.Unlock()
		if pid <= 0 {
			return
		}
	}
}
