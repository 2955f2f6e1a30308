// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package manager_test

import (
	"context"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// balancer stands for the Service in front of the replicas: it hands new connections to the endpoints in turn. Connections
// that are open stay where they are, as with a Service.
type balancer struct {
	url string

	mu        sync.Mutex
	endpoints []int
	next      int
}

func (w *world) newBalancer(t *testing.T) *balancer {
	t.Helper()
	port, err := w.cluster.Port()
	must(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", local(port))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	b := &balancer{url: "https://" + local(port)}
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
	return b
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (b *balancer) add(port int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = append(b.endpoints, port)
}

func (b *balancer) remove(port int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = slices.DeleteFunc(b.endpoints, func(p int) bool { return p == port })
}

func (b *balancer) pick() (port int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.endpoints) == 0 {
		return 0, false
	}
	b.next++
	return b.endpoints[b.next%len(b.endpoints)], true
}

func (b *balancer) serve(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	port, ok := b.pick()
	if !ok {
		return
	}
	replica, err := (&net.Dialer{}).DialContext(ctx, "tcp", local(port))
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
