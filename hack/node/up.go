// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type upOptions struct {
	install  bool
	logs     string
	while    int
	timeout  time.Duration
	archives []string
}

const (
	// pathVariable names the folders with the binaries, as PATH does.
	pathVariable = "FENCEDLEASE_NODE_PATH"
	// ownerVariable says that the keeper has got a descriptor of the process whose end is the cluster's.
	ownerVariable = "FENCEDLEASE_NODE_OWNER"
	// readyFile is there when the node is ready, logsFile names the folder that gets the logs at the end.
	readyFile, logsFile = "ready", "logs-to"
)

// up starts the cluster. If it fails or is interrupted, nothing is left.
func up(ctx context.Context, p place, o upOptions) error {
	begin := time.Now()
	if err := needPackages(ctx, o.install); err != nil {
		return err
	}
	if _, running := p.recorded("keeper"); running {
		say("is up already")
	} else if err := p.start(ctx, o); err != nil {
		return err
	}
	if err := p.load(ctx, o.archives); err != nil {
		return err
	}
	say("up after %.1f s", time.Since(begin).Seconds())
	fmt.Println(p.kubeconfig())
	return nil
}

func (p place) start(ctx context.Context, o upOptions) (err error) {
	if err := down(p); err != nil {
		return fmt.Errorf("remove what an earlier run has left: %w", err)
	}
	if err := os.MkdirAll(p.file("logs"), 0o700); err != nil {
		return err
	}
	lock, err := p.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()

	owner := os.NewFile(^uintptr(0), "none")
	if o.while != 0 {
		fd, err := unix.PidfdOpen(o.while, 0)
		if err != nil {
			return fmt.Errorf("find process %d: %w", o.while, err)
		}
		owner = os.NewFile(uintptr(fd), "owner")
		defer func() { _ = owner.Close() }()
	}
	if o.logs != "" {
		if o.logs, err = filepath.Abs(o.logs); err == nil {
			err = p.write(logsFile, []byte(o.logs))
		}
		if err != nil {
			return err
		}
	}
	log, err := os.Create(p.file("logs", "node.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()

	keeper := exec.Command("/proc/self/exe", "keep")
	keeper.Stdout, keeper.Stderr = log, log
	keeper.ExtraFiles = []*os.File{lock}
	if o.while != 0 {
		keeper.ExtraFiles = append(keeper.ExtraFiles, owner)
		keeper.Env = append(os.Environ(), ownerVariable+"=yes")
	}
	// Not in the terminal's session: an interrupt there is for this process, which then ends the cluster.
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := keeper.Start(); err != nil {
		return fmt.Errorf("start keeper: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- keeper.Wait() }()

	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	for {
		if _, err := os.Stat(p.file(readyFile)); err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("the cluster has ended:\n%s", tail(log))
		case <-ctx.Done():
			err := fmt.Errorf("the node was not ready in time, or the start was interrupted: %w\n%s", ctx.Err(), p.tails())
			_ = keeper.Process.Signal(syscall.SIGTERM)
			<-ended
			return errors.Join(err, down(p))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// lock makes this process, and those that inherit the descriptor, the only ones that start or clean.
func (p place) lock() (*os.File, error) {
	folder, err := os.Open(string(p))
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(errors.New("another process starts or ends the cluster right now"), folder.Close())
	}
	return folder, nil
}

// tails returns the ends of all logs.
func (p place) tails() string {
	var all strings.Builder
	logs, _ := filepath.Glob(p.file("logs", "*.log"))
	for _, name := range logs {
		if f, err := os.Open(name); err == nil {
			fmt.Fprintf(&all, "--- end of %s\n%s\n", filepath.Base(name), tail(f))
			_ = f.Close()
		}
	}
	return all.String()
}

func tail(f *os.File) string {
	const size = 2 << 10
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	data, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-size), size))
	if err != nil && !errors.Is(err, fs.ErrClosed) {
		return err.Error()
	}
	return string(data)
}
