// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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
	// over is closed when the replica may stop answering, answering counts what goes on until then.
	over      <-chan struct{}
	answering sync.WaitGroup
}

// context returns a context that ends delay after ctx. Its end is the end of the drain, also if it is cancelled before.
func (d *drain) context(ctx context.Context) (context.Context, context.CancelFunc) {
	delayed, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.over = delayed.Done()
	go func() {
		defer cancel()
		select {
		case <-delayed.Done():
			return
		case <-ctx.Done():
		}
		d.pass()
	}()
	return delayed, cancel
}

// pass turns the replica unready and returns when the delay has passed, or the drain is over for another reason.
func (d *drain) pass() {
	d.begun.Store(true)
	timer := d.clock.NewTimer(d.delay)
	defer timer.Stop()
	select {
	case <-d.over:
	case <-timer.C():
	}
}

// outlive runs what answers need until the drain is over, although the manager that has started it may end before: it does
// so at once when it loses the election, for the sake of the controllers.
func (d *drain) outlive(ctx context.Context, run func(context.Context) error) error {
	d.answering.Add(1)
	defer d.answering.Done()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-ctx.Done():
		case <-d.over:
		}
	}()
	return run(ctx)
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

// Start implements webhook.Server.
func (s drainingServer) Start(ctx context.Context) error { return s.drain.outlive(ctx, s.Server.Start) }

// drainingCache is what verdicts read of namespaces. It must be as fresh in the drain as before.
type drainingCache struct {
	cache.Cache
	drain *drain
}

// Start implements cache.Cache.
func (c drainingCache) Start(ctx context.Context) error { return c.drain.outlive(ctx, c.Cache.Start) }

// newCache makes the cache of a manager.
func (d *drain) newCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	inner, err := cache.New(config, options)
	if err != nil {
		return nil, err
	}
	return drainingCache{inner, d}, nil
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
