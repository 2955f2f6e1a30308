// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package outage_test

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/fencedlease/fencedlease/test/env"
)

// balancer stands for the Service in front of the replicas: it hands connections out in turn.
type balancer struct {
	url string

	mu       sync.Mutex
	backends []int
	next     int
}

func newBalancer(t *testing.T, cluster *env.Environment) *balancer {
	t.Helper()
	port, err := cluster.Port()
	must(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	b := &balancer{url: "https://127.0.0.1:" + strconv.Itoa(port)}
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

func (b *balancer) add(port int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = append(b.backends, port)
}

func (b *balancer) serve(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	b.mu.Lock()
	port := b.backends[b.next%len(b.backends)]
	b.next++
	b.mu.Unlock()
	backend, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return
	}
	defer func() { _ = backend.Close() }()
	stop := context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = backend.Close()
	})
	defer stop()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, backend}, {backend, client}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
		})
	}
	both.Wait()
}
