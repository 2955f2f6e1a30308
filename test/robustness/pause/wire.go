// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"

	"k8s.io/client-go/rest"
)

// wire is the way of one client's requests. It stops the first write at a step of its way.
type wire struct {
	step Step
	// entered is closed when the write has come as far as its step. The steps at the API server are not seen here.
	entered  chan struct{}
	released chan struct{}
	enter    sync.Once
	release  sync.Once
	write    sync.Once

	mu sync.Mutex
	// outgoing says that what is sent stays on the way; queued is what did.
	outgoing bool
	// incoming says that what has arrived is not shown.
	incoming bool
	conns    []*heldConn
}

func newWire(step Step) *wire {
	return &wire{step: step, entered: make(chan struct{}), released: make(chan struct{})}
}

// config returns a copy of a configuration whose requests go by this wire, on connections of their own.
func (w *wire) config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Dial = w.dial
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &wireTransport{w, next} })
	return config
}

// letGo ends the pause.
func (w *wire) letGo() {
	w.release.Do(func() {
		close(w.released)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.outgoing, w.incoming = false, false
		for _, c := range w.conns {
			c.flush()
		}
	})
}

// arm stops the first write.
func (w *wire) arm(r *http.Request) *http.Request {
	switch w.step {
	case BeforeSending:
		w.enter.Do(func() { close(w.entered) })
		select {
		case <-w.released:
		case <-r.Context().Done():
		}
	case InFlight:
		w.mu.Lock()
		w.outgoing = true
		w.mu.Unlock()
		return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { w.enter.Do(func() { close(w.entered) }) },
		}))
	case BeforeAnswer:
		w.mu.Lock()
		w.incoming = true
		w.mu.Unlock()
	case BeforeCommit, After:
	}
	return r
}

type wireTransport struct {
	wire *wire
	next http.RoundTripper
}

func (t *wireTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		t.wire.write.Do(func() { r = t.wire.arm(r) })
	}
	return t.next.RoundTrip(r)
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	held := &heldConn{Conn: conn, wire: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, held)
	return held, nil
}

// heldConn is a connection on which bytes stay under way for as long as its wire says.
type heldConn struct {
	net.Conn
	wire   *wire
	queued []byte
}

// Write keeps what is sent while the wire holds it, as a network does.
func (c *heldConn) Write(p []byte) (int, error) {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	if c.wire.outgoing {
		c.queued = append(c.queued, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// flush sends what has been kept. The caller holds the wire's lock.
func (c *heldConn) flush() {
	if len(c.queued) > 0 {
		// A failure shows in the next read.
		_, _ = c.Conn.Write(c.queued)
		c.queued = nil
	}
}

// Read shows what has arrived only when the wire lets it.
func (c *heldConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wire.mu.Lock()
	wait := c.wire.incoming
	c.wire.mu.Unlock()
	if wait {
		<-c.wire.released
	}
	return n, err
}
