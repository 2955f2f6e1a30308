// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/fencedlease/fencedlease/hack/demo/protocol"
)

const (
	// leaseDuration is short, so that the demo is, and long enough for a busy machine.
	leaseDuration = 5 * time.Second

	// answerTime bounds the wait for one report of a worker.
	answerTime = 30 * time.Second

	workerGrace = 2 * time.Second
)

// worker is a worker process.
type worker struct {
	*child
	orders io.Writer
	events chan protocol.Event
}

// startWorker starts a worker with a kubeconfig of its own.
func (c *cluster) startWorker(ctx context.Context, election, namespace, identity string) (*worker, error) {
	config, err := c.env.ServiceAccount(ctx, namespace, identity)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.env.WriteKubeconfig(namespace+"-"+identity, config)
	if err != nil {
		return nil, err
	}
	in, orders, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	events, out, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	process, err := startChild(c.dir, namespace+"-"+identity, in, out, nil, c.worker,
		"-kubeconfig="+kubeconfig, "-election="+election, "-namespace="+namespace, "-name="+leaseName,
		"-identity="+identity, "-lease-duration="+leaseDuration.String())
	// The child has its own ends, if it was started.
	_, _ = in.Close(), out.Close()
	if err != nil {
		_, _ = orders.Close(), events.Close()
		return nil, err
	}
	// Room for everything that a worker ever says.
	w := &worker{child: process, orders: orders, events: make(chan protocol.Event, 64)}
	c.children = append(c.children, process)
	go func() {
		defer close(w.events)
		defer func() { _, _ = orders.Close(), events.Close() }()
		lines := bufio.NewScanner(events)
		for lines.Scan() {
			var event protocol.Event
			if json.Unmarshal(lines.Bytes(), &event) == nil {
				w.events <- event
			}
		}
	}()
	return w, nil
}

// await returns the worker's next report of that name, and drops what it says of losing the lead on the way.
func (w *worker) await(ctx context.Context, names ...protocol.EventName) (protocol.Event, error) {
	timeout := time.NewTimer(answerTime)
	defer timeout.Stop()
	for {
		select {
		case event, open := <-w.events:
			if !open {
				return event, fmt.Errorf("%s has ended while %q was expected of it; %s", w.name, names, w.logTail())
			}
			for _, name := range names {
				if event.Name == name {
					return event, nil
				}
			}
			if event.Name != protocol.Lost {
				return event, &differsError{fmt.Sprintf("%s reported %+v, expected was %q", w.name, event, names)}
			}
		case <-timeout.C:
			return protocol.Event{}, fmt.Errorf("%s did not report %q within %s; %s", w.name, names, answerTime, w.logTail())
		case <-ctx.Done():
			return protocol.Event{}, ctx.Err()
		}
	}
}

// order tells the worker to write its result. A paused worker finds the order when it goes on.
func (w *worker) order(report string) error {
	line, err := json.Marshal(protocol.Order{Report: report})
	if err == nil {
		_, err = w.orders.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("order %s: %w", w.name, err)
	}
	return nil
}

// pause stops the process with SIGSTOP and returns when it has stopped.
func (w *worker) pause(ctx context.Context) error {
	if err := w.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		stopped, err := isStopped(ctx, w.cmd.Process.Pid)
		if err != nil {
			return fmt.Errorf("see whether %s is paused: %w", w.name, err)
		}
		if stopped {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *worker) resume() error { return w.signal(syscall.SIGCONT) }
