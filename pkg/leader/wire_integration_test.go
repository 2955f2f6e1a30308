//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// wire is a network that a test can hold up, cut and count on.
type wire struct {
	mu sync.Mutex
	// hold, if set, says which requests wait for release before they are sent.
	hold    func(*http.Request) bool
	held    chan struct{} // gets a value for each request that waits
	release chan struct{}
	// drop, if set, says of which requests the answer is thrown away after the server has acted.
	drop func(*http.Request) bool
	// silent keeps what the server sends on watches back until it is closed.
	silent  chan struct{}
	count   map[string]int // requests by method, watches as "WATCH"
	streams map[*stream]bool
	lines   map[*line]bool
}

var errCut = errors.New("connection was cut")

func newWire() *wire {
	return &wire{held: make(chan struct{}, 1000), release: make(chan struct{}), count: map[string]int{}, streams: map[*stream]bool{}, lines: map[*line]bool{}}
}

// trip is the wire of one client: an elector has two.
type trip struct {
	*wire
	next http.RoundTripper
}

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper { return &trip{wire: w, next: next} }

func (w *wire) set(hold, drop func(*http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold, w.drop = hold, drop
}

// silence keeps events of watches back until the returned function is called.
func (w *wire) silence() (speak func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	silent := make(chan struct{})
	w.silent = silent
	return sync.OnceFunc(func() { close(silent) })
}

// cutWatch ends a watch as a broken connection does, and reports whether there was one.
func (w *wire) cutWatch() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.streams {
		s.cut()
		delete(w.streams, s)
		return true
	}
	return false
}

// freeze makes all present connections dead without anybody noticing: nothing comes and nothing leaves.
func (w *wire) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.lines {
		l.freeze()
	}
}

func (w *wire) requests(methods ...string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, method := range methods {
		n += w.count[method]
	}
	return n
}

func (w *wire) all() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, c := range w.count {
		n += c
	}
	return n
}

func isWatch(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Query().Get("watch") != ""
}
func patches(r *http.Request) bool { return r.Method == http.MethodPatch }

func (t *trip) RoundTrip(request *http.Request) (*http.Response, error) {
	w := t.wire
	w.mu.Lock()
	if isWatch(request) {
		w.count["WATCH"]++
	} else {
		w.count[request.Method]++
	}
	hold := w.hold != nil && w.hold(request)
	drop := w.drop != nil && w.drop(request)
	release := w.release
	w.mu.Unlock()
	if hold {
		w.held <- struct{}{}
		<-release
	}
	response, err := t.next.RoundTrip(request)
	if err == nil && drop {
		_ = response.Body.Close()
		return nil, errCut
	}
	if err == nil && isWatch(request) {
		s := &stream{ReadCloser: response.Body, wire: w, dead: make(chan struct{})}
		w.mu.Lock()
		w.streams[s] = true
		w.mu.Unlock()
		response.Body = s
	}
	return response, err
}

// stream is what a watch reads.
type stream struct {
	io.ReadCloser
	wire *wire
	once sync.Once
	dead chan struct{}
}

func (s *stream) cut() { s.once.Do(func() { close(s.dead); _ = s.ReadCloser.Close() }) }

func (s *stream) Close() error {
	s.cut()
	s.wire.mu.Lock()
	defer s.wire.mu.Unlock()
	delete(s.wire.streams, s)
	return nil
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.wire.mu.Lock()
	silent := s.wire.silent
	s.wire.mu.Unlock()
	if silent != nil {
		select {
		case <-silent:
		case <-s.dead:
		}
	}
	select {
	case <-s.dead:
		return 0, io.ErrUnexpectedEOF
	default:
		return n, err
	}
}

// line is one connection.
type line struct {
	net.Conn
	wire   *wire
	frozen atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l := &line{Conn: conn, wire: w, closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines[l] = true
	return l, nil
}

func (l *line) freeze() { l.frozen.Store(true) }

func (l *line) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if l.frozen.Load() {
		<-l.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (l *line) Write(p []byte) (int, error) {
	if l.frozen.Load() {
		return len(p), nil
	}
	return l.Conn.Write(p)
}

func (l *line) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.wire.mu.Lock()
		defer l.wire.mu.Unlock()
		delete(l.wire.lines, l)
	})
	return l.Conn.Close()
}
