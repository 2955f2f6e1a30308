// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/fencedlease/fencedlease/internal/possession"
)

// Elector campaigns for one FencedLease and runs work under the terms that it wins.
type Elector struct {
	options Options
	// writes sends reads and writes, watches the watch. Each has connections of its own, so that a dead one of requests
	// can be given up without the watch.
	writes, watches possession.Client
	// connections are those of writes, watched those of watches.
	connections, watched *connrotation.Dialer
	// running says that Run runs, working that work has not returned.
	running, working atomic.Bool
}

// New checks the options and returns an elector. It sends no request.
func New(options Options) (*Elector, error) {
	if err := options.complete(); err != nil {
		return nil, err
	}
	e := &Elector{options: options}
	var err error
	if e.writes, e.connections, err = e.client(); err != nil {
		return nil, err
	}
	if e.watches, e.watched, err = e.client(); err != nil {
		return nil, err
	}
	return e, nil
}

// client returns a client with connections of its own. A config with a Transport keeps the connections of that.
func (e *Elector) client() (possession.Client, *connrotation.Dialer, error) {
	config := rest.CopyConfig(e.options.Config)
	config.QPS, config.RateLimiter = -1, nil
	config.Timeout = 0 // requests are bounded one by one, and the watch must not be
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	dialer := connrotation.NewDialer(dial)
	if config.Transport == nil {
		config.Dial = dialer.DialContext
	}
	client, err := possession.NewClient(config)
	if err != nil {
		return possession.Client{}, nil, err
	}
	return possession.Client{REST: client, Namespace: e.options.Namespace, Name: e.options.Name}, dialer, nil
}

// Identity returns the holder that the lease shows while the elector leads.
func (e *Elector) Identity() string { return e.options.Identity }

// run is one call of Run.
type run struct {
	*Elector
	view *view
	// began is when Run began. It has a monotonic reading.
	began time.Time
	// mine is the id of the last term, whose work has returned, or empty.
	mine string
	// told is what OnWaiting was last told.
	told string
}

// Run campaigns for the lease and runs the work under each term, until the work returns by itself, a term is lost with
// Options.ExitOnLoss, or ctx ends. The package comment says how work ends. Two works never run at once.
//
// The context of the work ends with its term and with ctx; its cause is the *LostError then, or that of ctx. Run returns
// what the work returned, joined with ErrWorkRunning or the *LostError where that applies, or the cause of ctx if that
// ended before a term began. Everything that Run has started has ended when it returns, except work that does not.
func (e *Elector) Run(ctx context.Context, work func(ctx context.Context, term *Term) error) error {
	if e.working.Load() || !e.running.CompareAndSwap(false, true) {
		return ErrWorkRunning
	}
	defer e.running.Store(false)
	r := &run{Elector: e, view: newView(e.options.Clock), began: e.options.Clock.Now()}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watch(watching)
	}()
	defer func() {
		stop()
		<-watched
		e.connections.CloseAll()
		e.watched.CloseAll()
	}()
	for {
		term, working, err := r.campaign(ctx)
		if err != nil {
			return err
		}
		end := r.lead(ctx, working, term, work)
		if end.panicked != nil {
			panic(end.panicked) // what the work panicked with must not get lost
		}
		if end.final {
			return end.err
		}
		r.mine = term.info.ID
	}
}
