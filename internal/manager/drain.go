// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// longestReview is the longest time that a webhook configuration can give a review.
const longestReview = 30 * time.Second

// drain lets an ending replica leave without failing a write: it turns unready, goes on answering and asks clients to
// close their connections, and only after a delay, in which endpoints have changed, does it stop.
type drain struct {
	clock clock.Clock
	delay time.Duration
	begun atomic.Bool
}

// context returns a context that ends delay after ctx.
func (d *drain) context(ctx context.Context) (context.Context, context.CancelFunc) {
	delayed, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer cancel()
		select {
		case <-delayed.Done():
			return
		case <-ctx.Done():
		}
		d.begun.Store(true)
		timer := d.clock.NewTimer(d.delay)
		defer timer.Stop()
		select {
		case <-delayed.Done():
		case <-timer.C():
		}
	}()
	return delayed, cancel
}

// ready is a readiness check that turns red when the drain has begun.
func (d *drain) ready(*http.Request) error {
	if d.begun.Load() {
		return errors.New("this replica is ending")
	}
	return nil
}

// closing wraps a handler so that each answer of an ending replica asks for its connection to be closed: the next request
// then goes to another replica.
func (d *drain) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.begun.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// drainingServer is a webhook server whose replica leaves without failing a write, whatever handler is registered.
type drainingServer struct {
	webhook.Server
	drain *drain
}

// Register implements webhook.Server.
func (s drainingServer) Register(path string, hook http.Handler) {
	s.Server.Register(path, s.drain.closing(finishing(hook)))
}

// finishing wraps a handler so that it can finish what it has begun. The server waits for requests when it stops, but
// first it cancels their contexts, on which a handler can only answer that it cannot tell.
func finishing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// API servers wait no longer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), longestReview)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
