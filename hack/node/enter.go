// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

var errDown = errors.New("the cluster is not up")

// exec becomes a command in the cluster's network. Files and processes are those of the machine.
func (p place) exec(_ context.Context, args []string) error {
	init, running := p.recorded("init")
	if !running {
		return errDown
	}
	if len(args) == 0 {
		return errors.New("exec needs a command")
	}
	path, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	return syscall.Exec(path, append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", init.pid), "--"}, args...),
		append(os.Environ(), "KUBECONFIG="+p.kubeconfig()))
}

// inside returns a command on the node.
func (p place) inside(ctx context.Context, args []string) (*exec.Cmd, error) {
	init, running := p.recorded("init")
	if !running {
		return nil, errDown
	}
	target := strconv.Itoa(init.pid)
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"-t", target, "-m", "-n", "-p", "--"}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd, nil
}

func (p place) enter(ctx context.Context, args []string) error {
	cmd, err := p.inside(ctx, args)
	if err != nil {
		return err
	}
	return cmd.Run()
}

// load loads image archives.
func (p place) load(ctx context.Context, archives []string) error {
	for _, name := range archives {
		if err := p.loadOne(ctx, name); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

func (p place) loadOne(ctx context.Context, name string) error {
	archive, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	cmd, err := p.inside(ctx, []string{"ctr", "--address", p.socket(), "-n", "k8s.io", "images", "import", "-"})
	if err != nil {
		return err
	}
	// Standard output is for what the caller asked for.
	cmd.Stdin, cmd.Stdout = archive, os.Stderr
	return cmd.Run()
}

// kill sends a signal to a process that the first one has started, and that it starts again.
func (p place) kill(ctx context.Context, args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return errors.New("kill needs a name and perhaps a signal")
	}
	pid, err := os.ReadFile(p.file("pids", args[0]))
	if err != nil {
		return fmt.Errorf("find %s: %w", args[0], err)
	}
	name := "KILL"
	if len(args) == 2 {
		name = args[1]
	}
	return p.enter(ctx, []string{"sh", "-c", `kill -s "$0" "$1"`, name, strings.TrimSpace(string(pid))})
}
