// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ProxyMode is what a Proxy does with what passes.
type ProxyMode int

const (
	// ProxyPass lets everything pass.
	ProxyPass ProxyMode = iota
	// ProxyDelay lets everything pass late, in both directions.
	ProxyDelay
	// ProxyHold lets nothing pass. Connections stay open, and what was held goes on when the mode changes, as after packets
	// were lost for a while.
	ProxyHold
	// ProxyHalfClose ends the direction from the target to the client: requests arrive, answers do not.
	ProxyHalfClose
	// ProxyCut closes all connections and accepts none.
	ProxyCut
)

// String names the mode.
func (m ProxyMode) String() string {
	return [...]string{"pass", "delay", "hold", "half-close", "cut"}[m]
}

// Proxy stands between clients and their targets, to which it hands new connections in turn. It knows nothing of what
// passes: TLS stays between the two.
type Proxy struct {
	// Port is where clients connect.
	Port int

	listener net.Listener
	cancel   context.CancelFunc
	all      sync.WaitGroup

	mu      sync.Mutex
	targets []int
	next    int
	mode    ProxyMode
	delay   time.Duration
	changed chan struct{}
	open    map[*link]bool
	// affected counts what a mode other than ProxyPass has met.
	affected atomic.Int64
}

// link is one connection through a proxy.
type link struct {
	client, target *net.TCPConn
}

// StartProxy starts a proxy to ports of this machine. It ends with the environment; the context bounds the start only.
func (e *Environment) StartProxy(ctx context.Context, targets ...int) (*Proxy, error) {
	port, err := e.ports.take()
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", Local(port))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &Proxy{
		Port: port, listener: listener, cancel: cancel, targets: targets, changed: make(chan struct{}), open: map[*link]bool{},
	}
	p.all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.serve(running, client.(*net.TCPConn)) }) //nolint:forcetypeassert // of a TCP listener
		}
	})
	e.proxies = append(e.proxies, p)
	return p, nil
}

func (e *Environment) closeProxies() {
	for _, p := range e.proxies {
		p.close()
	}
}

func (p *Proxy) close() {
	p.cancel()
	_ = p.listener.Close()
	p.Set(ProxyCut, 0)
	p.all.Wait()
}

// URL returns where clients connect.
func (p *Proxy) URL() string { return localURL("https", p.Port) }

// Set changes the mode, for connections that are open, too. The delay is that of ProxyDelay.
func (p *Proxy) Set(mode ProxyMode, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Connections whose answers were lost are of no use any more.
	useless := p.mode == ProxyHalfClose && mode != ProxyHalfClose
	p.mode, p.delay = mode, delay
	close(p.changed)
	p.changed = make(chan struct{})
	for l := range p.open {
		switch {
		case mode == ProxyCut || useless:
			p.affected.Add(1)
			l.close()
		case mode == ProxyHalfClose:
			p.affected.Add(1)
			_ = l.client.CloseWrite()
		}
	}
}

// Affected returns how many transfers and connections were delayed, held, lost or cut so far.
func (p *Proxy) Affected() int64 { return p.affected.Load() }

// Remove takes a target out: new connections do not go there.
func (p *Proxy) Remove(target int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = slices.DeleteFunc(p.targets, func(t int) bool { return t == target })
}

// Add adds a target.
func (p *Proxy) Add(target int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = append(p.targets, target)
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.target.Close()
}

// state returns the mode, its delay and what is closed at the next change.
func (p *Proxy) state() (ProxyMode, time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.delay, p.changed
}

func (p *Proxy) pick() (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.targets) == 0 || p.mode == ProxyCut {
		p.affected.Add(1)
		return 0, false
	}
	p.next++
	return p.targets[p.next%len(p.targets)], true
}

func (p *Proxy) serve(ctx context.Context, client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	port, ok := p.pick()
	if !ok {
		return
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", Local(port))
	if err != nil {
		return
	}
	l := &link{client: client, target: conn.(*net.TCPConn)} //nolint:forcetypeassert // of a TCP dial
	defer l.close()
	p.mu.Lock()
	p.open[l] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, l)
	}()
	var both sync.WaitGroup
	both.Go(func() { p.pump(ctx, l.target, l.client, false) })
	both.Go(func() { p.pump(ctx, l.client, l.target, true) })
	both.Wait()
}

// pump copies one direction until it ends.
func (p *Proxy) pump(ctx context.Context, to, from *net.TCPConn, answers bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && p.let(ctx, answers) {
			if _, err := to.Write(buffer[:n]); err != nil {
				_ = from.CloseRead()
				return
			}
		}
		if err != nil {
			// The other direction may go on.
			_ = to.CloseWrite()
			return
		}
	}
}

// let waits until something that was read may pass, and tells whether it passes at all.
func (p *Proxy) let(ctx context.Context, answers bool) bool {
	delayed := false
	for {
		mode, delay, changed := p.state()
		if mode != ProxyPass && !delayed {
			p.affected.Add(1)
		}
		switch {
		case mode == ProxyPass, mode == ProxyDelay && delayed:
			return true
		case mode == ProxyCut:
			return false
		case mode == ProxyHalfClose:
			return !answers
		case mode == ProxyDelay:
			timer := time.NewTimer(delay)
			select {
			case <-timer.C:
				delayed = true
			case <-changed:
				timer.Stop()
			case <-ctx.Done():
				timer.Stop()
				return false
			}
		default: // ProxyHold
			select {
			case <-changed:
			case <-ctx.Done():
				return false
			}
		}
	}
}
