// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Ports are taken from below the range that systems give to outgoing connections, so that a port is still free when a
// process that has left it comes back.
const (
	firstPort = 20000
	lastPort  = 32000
)

// portLocks keeps ports for one environment: each is a locked file, which other environments on the machine respect, and
// which the kernel unlocks when the process ends.
type portLocks []*os.File

// take returns a port that nothing listens on and no other environment has taken.
func (l *portLocks) take() (int, error) {
	dir := filepath.Join(os.TempDir(), "fencedlease-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, fmt.Errorf("make folder of port locks: %w", err)
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort) //nolint:gosec // no secret
		f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return 0, fmt.Errorf("open port lock: %w", err)
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil || !free(port) {
			_ = f.Close()
			continue
		}
		*l = append(*l, f)
		return port, nil
	}
	return 0, errors.New("find a free port: none in 1000 tries")
}

// free tells whether nothing listens on the port, on any address.
func free(port int) bool {
	for _, host := range []string{"127.0.0.1", ""} {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))) //nolint:noctx // ends at once
		if err != nil {
			return false
		}
		_ = listener.Close()
	}
	return true
}

// release gives all ports back.
func (l *portLocks) release() {
	for _, f := range *l {
		_ = f.Close()
	}
	*l = nil
}
