// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const (
	// maxMessage bounds a message.
	maxMessage = 1 << 20

	readyForQuery = 'Z'
	simpleQuery   = 'Q'
	parse         = 'P'
)

// Message is a message from a client to the server, after the start of its session.
type Message struct {
	// Type is its first byte.
	Type byte
	// Statement is the SQL of a message that has some, in lower case and without spaces around it.
	Statement string
	// Begins says that the client sends it after the server has answered all that came before. Until then the server is not
	// idle, and what is to be sent leaves the client in one piece.
	Begins bool

	raw []byte
}

// Commits reports whether the message ends a transaction well.
func (m Message) Commits() bool { return m.Statement == "commit" }

// Proxy stands between clients and a server.
type Proxy struct {
	server   *Server
	listener net.Listener
	all      sync.WaitGroup

	mu       sync.Mutex
	holds    []*Hold
	rewrite  func(statement string) string
	messages []Message
	open     map[net.Conn]bool
	closed   bool
}

// Hold is what happens to one message, the first that matches.
type Hold struct {
	match   func(Message) bool
	entered chan Message
	proceed chan step
	loses   bool
}

// step is how a held message goes on.
type step int

const (
	forward step = iota
	// abandon closes the client's connection and waits for another step.
	abandon
)

// Entered gives the message as soon as it is held.
func (h *Hold) Entered() <-chan Message { return h.entered }

// Release lets the message go on.
func (h *Hold) Release() { h.proceed <- forward }

// Abandon closes the client's connection, while the message is still on its way. Release lets it arrive afterwards.
func (h *Hold) Abandon() { h.proceed <- abandon }

// StartProxy starts a proxy.
func (s *Server) StartProxy(ctx context.Context) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for clients of PostgreSQL: %w", err)
	}
	p := &Proxy{server: s, listener: listener, open: map[net.Conn]bool{}}
	p.all.Go(p.serve)
	return p, nil
}

// DSN is how a driver connects to a database through the proxy.
func (p *Proxy) DSN(database string) string {
	host, port, _ := net.SplitHostPort(p.listener.Addr().String())
	return "host=" + host + " port=" + port + " user=postgres sslmode=disable dbname=" + database
}

// Hold keeps the first message that matches from the server until it is released, and answers from its client. Later
// messages pass.
func (p *Proxy) Hold(match func(Message) bool) *Hold { return p.add(match, false) }

// LoseAnswer lets the first message that matches arrive, and closes the client's connection when the server has answered,
// instead of telling it.
func (p *Proxy) LoseAnswer(match func(Message) bool) *Hold { return p.add(match, true) }

func (p *Proxy) add(match func(Message) bool, loses bool) *Hold {
	h := &Hold{match: match, entered: make(chan Message, 1), proceed: make(chan step, 2), loses: loses}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h
}

// Rewrite has the server see other statements than clients send from now on.
func (p *Proxy) Rewrite(f func(statement string) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rewrite = f
}

// Messages returns all that have come from clients, oldest first.
func (p *Proxy) Messages() []Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.messages)
}

// Close ends all connections. Messages that are held are lost. It may be called again.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	for c := range p.open {
		_ = c.Close()
	}
	for _, h := range p.holds {
		close(h.proceed)
	}
	p.mu.Unlock()
	err := p.listener.Close()
	p.all.Wait()
	return err
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial("unix", filepath.Join(p.server.folder, socket)) //nolint:noctx // it is at hand
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.open[client], p.open[server] = true, true
		if p.closed {
			_, _ = client.Close(), server.Close()
		}
		p.mu.Unlock()
		s := &session{proxy: p, client: client, server: server}
		p.all.Go(s.run)
	}
}

// session is one connection through the proxy.
type session struct {
	proxy          *Proxy
	client, server net.Conn

	mu sync.Mutex
	// held is closed when a message that is held goes on, and nil if none is: meanwhile the client hears nothing.
	held chan struct{}
	// ready says that the server has answered all that was sent.
	ready bool
	// loses is closed when the answer that is to be lost has come, and nil if none is.
	loses chan struct{}
}

func (s *session) run() {
	defer s.close()
	var answers sync.WaitGroup
	answers.Go(s.answers)
	_ = s.requests() // ends when either side is gone
	_ = s.server.Close()
	answers.Wait()
}

func (s *session) close() {
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	for _, c := range []net.Conn{s.client, s.server} {
		_ = c.Close()
		delete(s.proxy.open, c)
	}
}

// requests passes on what the client sends.
func (s *session) requests() error {
	start, err := readMessage(s.client, false)
	if err != nil {
		return err
	}
	if _, err := s.server.Write(start); err != nil {
		return err
	}
	for {
		raw, err := readMessage(s.client, true)
		if err != nil {
			return err
		}
		raw = s.proxy.rewritten(raw)
		s.mu.Lock()
		m := Message{Type: raw[0], Statement: statementOf(raw), Begins: s.ready, raw: raw}
		s.ready = false
		s.mu.Unlock()
		if err := s.request(m); err != nil {
			return err
		}
	}
}

func (s *session) request(m Message) error {
	hold := s.proxy.take(m)
	if hold == nil {
		_, err := s.server.Write(m.raw)
		return err
	}
	if hold.loses {
		hold.entered <- m
		lost := make(chan struct{})
		s.mu.Lock()
		s.loses = lost
		s.mu.Unlock()
		if _, err := s.server.Write(m.raw); err != nil {
			return err
		}
		<-lost
		return errors.New("answer lost")
	}
	held := make(chan struct{})
	s.mu.Lock()
	s.held = held
	s.mu.Unlock()
	defer close(held)
	hold.entered <- m
	for {
		next, ok := <-hold.proceed
		if !ok {
			return errors.New("proxy closed")
		}
		if next == forward {
			_, err := s.server.Write(m.raw)
			return err
		}
		_ = s.client.Close()
	}
}

// take records a message, and returns what holds it.
func (p *Proxy) take(m Message) *Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.messages = append(p.messages, m)
	if i := slices.IndexFunc(p.holds, func(h *Hold) bool { return len(h.entered) == 0 && h.match != nil && h.match(m) }); i >= 0 {
		p.holds[i].match = nil
		return p.holds[i]
	}
	return nil
}

// answers passes on what the server sends.
func (s *session) answers() {
	defer func() { _ = s.client.Close() }()
	for {
		raw, err := readMessage(s.server, true)
		s.mu.Lock()
		lost, held := s.loses, s.held
		s.ready = s.ready || err == nil && raw[0] == readyForQuery
		s.mu.Unlock()
		if lost != nil {
			if err != nil || raw[0] == readyForQuery {
				close(lost)
				return
			}
			continue
		}
		if held != nil {
			<-held
		}
		if err != nil {
			return
		}
		if _, err := s.client.Write(raw); err != nil {
			// The client is gone; what the server says to it is of no interest, and it must not wait for a reader.
			_, _ = io.Copy(io.Discard, s.server)
			return
		}
	}
}

// readMessage reads one message, with the byte of its type or, at the start of a session, without.
func readMessage(r io.Reader, typed bool) ([]byte, error) {
	head := make([]byte, 4, 64)
	if typed {
		head = make([]byte, 5, 64)
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[len(head)-4:])
	if length < 4 || length > maxMessage {
		return nil, fmt.Errorf("message of %d bytes", length)
	}
	raw := slices.Grow(head, int(length)-4)[:len(head)+int(length)-4]
	_, err := io.ReadFull(r, raw[len(head):])
	return raw, err
}

func statementOf(raw []byte) string {
	_, text, _ := cut(raw)
	return strings.ToLower(strings.TrimSpace(string(text)))
}

// cut returns the statement of a message, if it has one, with what comes before and after it.
func cut(raw []byte) (before, statement, after []byte) {
	begin := 5
	switch raw[0] {
	case simpleQuery:
	case parse:
		begin += bytes.IndexByte(raw[begin:], 0) + 1 // its name
	default:
		return raw, nil, nil
	}
	end := begin + max(bytes.IndexByte(raw[begin:], 0), 0)
	return raw[:begin], raw[begin:end], raw[end:]
}

// rewritten returns the message with another statement, if its statement is to be another one.
func (p *Proxy) rewritten(raw []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, statement, after := cut(raw)
	if p.rewrite == nil || len(statement) == 0 {
		return raw
	}
	changed := slices.Concat(before, []byte(p.rewrite(string(statement))), after)
	binary.BigEndian.PutUint32(changed[1:], uint32(len(changed)-1))
	return changed
}
