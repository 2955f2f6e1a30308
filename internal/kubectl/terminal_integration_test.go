// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration && linux

package kubectl_test

import (
	"os"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns the two ends of a terminal: what a person types and reads, and what a process has.
func openTerminal(t *testing.T) (person, process *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(t, err)
	process, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	return person, process
}

// terminalIsTheCommands starts the plugin as a shell does: in the foreground of a terminal.
func terminalIsTheCommands(t *testing.T, s *runSuite) {
	lease := s.lease(t)
	begin := func(command string) (*child, *os.File) {
		person, process := openTerminal(t)
		c := s.prepare(t, lease, with{}, "--", "sh", "-c", command)
		c.cmd.Stdin = process
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
		c.begin()
		must(t, process.Close())
		return c.awaits("ready"), person
	}
	c, person := begin("echo ready; read line; echo got $line")
	_, err := person.WriteString("a line\n")
	must(t, err)
	c.awaits("got a line").ends(0, "")

	c, person = begin("echo ready; sleep 600")
	_, err = person.WriteString("\x03") // the key that interrupts
	must(t, err)
	c.ends(128+int(syscall.SIGINT), "")
	if holder := s.holder(t, lease); holder != "" {
		t.Errorf("the lease has to be released, %q holds it", holder)
	}
}
