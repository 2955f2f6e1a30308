// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
)

// Balancer stands for the Service in front of the replicas of a webhook: it hands new connections to the endpoints in
// turn. Connections that are open stay where they are, as with a Service.
type Balancer struct {
	// URL is where API servers call, https://127.0.0.1:<port>.
	URL string

	mu        sync.Mutex
	endpoints []int
	next      int
}

// StartBalancer starts a balancer without endpoints. It ends with the test.
func (e *Environment) StartBalancer(t T) *Balancer {
	t.Helper()
	b, err := e.startBalancer(t)
	if err != nil {
		t.Fatalf("start balancer: %v", err)
	}
	return b
}

func (e *Environment) startBalancer(t T) (*Balancer, error) {
	port, err := e.ports.take()
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", Local(port))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b := &Balancer{URL: localURL("https", port)}
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() { b.serve(ctx, client) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		connections.Wait()
	})
	return b, nil
}

// Local returns the address of a port of this machine.
func Local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Add adds the endpoint of a replica.
func (b *Balancer) Add(port int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = append(b.endpoints, port)
}

// Remove removes the endpoint of a replica.
func (b *Balancer) Remove(port int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = slices.DeleteFunc(b.endpoints, func(p int) bool { return p == port })
}

func (b *Balancer) pick() (port int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.endpoints) == 0 {
		return 0, false
	}
	b.next++
	return b.endpoints[b.next%len(b.endpoints)], true
}

func (b *Balancer) serve(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	port, ok := b.pick()
	if !ok {
		return
	}
	replica, err := (&net.Dialer{}).DialContext(ctx, "tcp", Local(port))
	if err != nil {
		return
	}
	defer func() { _ = replica.Close() }()
	stop := context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = replica.Close()
	})
	defer stop()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, replica}, {replica, client}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
		})
	}
	both.Wait()
}
