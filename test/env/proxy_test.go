// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// echo answers every line with itself, and says which lines it got.
func echo(t *testing.T, e *Environment) (port int, got chan string) {
	t.Helper()
	port, err := e.Port()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", Local(port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	got = make(chan string, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					got <- lines.Text()
					_, _ = io.WriteString(conn, lines.Text()+"\n")
				}
			}()
		}
	}()
	return port, got
}

type talk struct {
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, p *Proxy) *talk {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", Local(p.Port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &talk{Conn: conn, lines: bufio.NewReader(conn)}
}

func (c *talk) say(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (c *talk) hears(t *testing.T, want string) {
	t.Helper()
	if line, err := c.lines.ReadString('\n'); strings.TrimSpace(line) != want {
		t.Fatalf("want %q, got %q: %v", want, line, err)
	}
}

func TestProxy(t *testing.T) {
	e := &Environment{}
	t.Cleanup(e.ports.release)
	port, got := echo(t, e)
	p, err := e.StartProxy(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.closeProxies)

	c := dial(t, p)
	c.say(t, "pass")
	c.hears(t, "pass")
	<-got

	p.Set(ProxyHold, 0)
	c.say(t, "held")
	if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.lines.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("want nothing while it holds, got %v", err)
	}
	select {
	case line := <-got:
		t.Fatalf("%q passed while it holds", line)
	default:
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	p.Set(ProxyDelay, time.Millisecond)
	c.hears(t, "held")
	<-got

	p.Set(ProxyHalfClose, 0)
	c.say(t, "unanswered")
	if line := <-got; line != "unanswered" {
		t.Fatalf("the target got %q", line)
	}
	if _, err := c.lines.ReadByte(); !errors.Is(err, io.EOF) {
		t.Fatalf("want the end of answers, got %v", err)
	}

	p.Set(ProxyCut, 0)
	c = dial(t, p)
	if _, err := c.lines.ReadByte(); err == nil {
		t.Fatal("want no connection")
	}
	p.Set(ProxyPass, 0)
	c = dial(t, p)
	c.say(t, "again")
	c.hears(t, "again")
}
