// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/fencedlease/fencedlease/pkg/token"
)

// DefaultParallel is how many objects are stamped at once.
const DefaultParallel = 16

const (
	// firstPause and longestPause bound the pause between attempts of a seal that fails.
	firstPause   = time.Second
	longestPause = 30 * time.Second
	// progressPause is how often progress is asked for.
	progressPause = 2 * time.Second
)

// Options are what a Sealer needs of its surroundings. All are required, but for Parallel.
type Options struct {
	// Objects reads and stamps guarded objects. It should have no rate limit of its own.
	Objects metadata.Interface
	// Parallel is how many requests the stamps of all leases make at once. Defaults to DefaultParallel.
	Parallel int
	// Wake makes the controller look at a lease again. It must not block for long.
	Wake func(ctx context.Context, lease types.NamespacedName)
	// Above is told of a mark above the lease's generation.
	Above func(lease types.NamespacedName, generation int64, object string)
	// Created is told of each late create, and Later of objects with older marks that were found after the seal, of which it
	// is not known whether they were created late.
	Created func(order Order, object string, deleted bool, err error)
	Later   func(order Order, count int64)
	Metrics *Metrics
	Clock   clock.PassiveClock
}

// Order is the seal of one term. Orders of one lease with equal Term, Token and Version are the same order.
type Order struct {
	Lease types.NamespacedName
	UID   types.UID
	// Token is that of the term.
	Token token.Token
	// Version is different whenever something else is guarded, or guarded otherwise.
	Version string
	// Sealed says that the term has been sealed already: what is found now came later.
	Sealed bool
	// DeleteLate deletes late creates.
	DeleteLate bool
	// Lenient makes a missing right keep nobody waiting, for leases that refuse nothing.
	Lenient bool
	// Targets returns what is guarded, as it is now.
	Targets func(ctx context.Context) ([]Target, error)
}

// same reports whether two orders ask for the same.
func (o Order) same(p Order) bool {
	return o.UID == p.UID && o.Token == p.Token && o.Version == p.Version
}

// Sealer carries orders out. It keeps nothing that the leases and the objects do not say: another replica that is given the
// same orders goes on where this one has ended.
type Sealer struct {
	options Options
	// slots limit the requests that stamps make at once.
	slots chan struct{}
	// started is closed when the Sealer runs.
	started chan struct{}

	mu sync.Mutex
	// ctx is that of Start, and running counts what was started in it.
	ctx      context.Context //nolint:containedctx // sessions live as long as the Sealer runs, not as long as who asks for them
	running  sync.WaitGroup
	sessions map[types.NamespacedName]*session
}

// New returns a Sealer that does not run yet.
func New(options Options) *Sealer {
	if options.Parallel <= 0 {
		options.Parallel = DefaultParallel
	}
	s := &Sealer{
		options: options, slots: make(chan struct{}, options.Parallel), started: make(chan struct{}),
		sessions: map[types.NamespacedName]*session{},
	}
	options.Metrics.setPending(s.pending)
	return s
}

// NeedLeaderElection makes the manager run the Sealer on the elected replica only.
func (*Sealer) NeedLeaderElection() bool { return true }

// Start runs the Sealer until ctx ends, and returns when nothing of it runs any more.
func (s *Sealer) Start(ctx context.Context) error {
	s.mu.Lock()
	if s.ctx != nil {
		s.mu.Unlock()
		return errors.New("start sealer: it was started before")
	}
	s.ctx = ctx
	close(s.started)
	s.mu.Unlock()
	<-ctx.Done()
	// Whoever holds the lock may have begun a session that it did not see the end of ctx for. Nobody does afterwards.
	s.mu.Lock()
	s.mu.Unlock() //nolint:staticcheck // see above
	s.running.Wait()
	return nil
}

// Running returns the status of an order that is being carried out or was, and false if this Sealer does not know it.
func (s *Sealer) Running(order Order) (Status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.sessions[order.Lease]; known != nil && known.order.same(order) && !known.paused && !known.undone(order) {
		return known.status(), true
	}
	return Status{}, false
}

// Pause stops what is done for a lease until its next order, and remembers what was.
func (s *Sealer) Pause(lease types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.sessions[lease]; known != nil {
		known.end()
		known.paused = true
	}
}

// Seal carries an order out instead of any other one of its lease, and returns what has become of it so far. It wakes the
// lease when this changes in kind. again is when to ask again in any case, or 0.
func (s *Sealer) Seal(ctx context.Context, order Order) (status Status, again time.Duration) {
	select {
	case <-s.started:
	case <-ctx.Done():
		return Status{State: Stamping}, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.sessions[order.Lease]
	switch {
	case s.ctx.Err() != nil:
		return Status{State: Stamping}, 0
	case known == nil:
		known = s.begin(order, nil)
	case !known.order.same(order):
		known.end()
		known = s.begin(order, known.after(order))
	case known.undone(order):
		known.end()
		known = s.begin(order, nil)
	case known.paused, known.over():
		known.end()
		known = s.begin(order, known)
	}
	known.recorded = known.recorded || order.Sealed
	return known.status(), known.again()
}

// End drops what is known of a lease.
func (s *Sealer) End(lease types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.sessions[lease]; known != nil {
		known.end()
		delete(s.sessions, lease)
	}
}

// begin starts a session. before is one for the same term, or nil.
func (s *Sealer) begin(order Order, before *session) *session {
	ctx, cancel := context.WithCancel(s.ctx)
	now := newSession(s, order, cancel, before)
	s.sessions[order.Lease] = now
	s.running.Go(func() { now.run(ctx) })
	return now
}

// pending is about how many objects are still to be looked at.
func (s *Sealer) pending() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum int64
	for _, known := range s.sessions {
		sum += known.status().Pending
	}
	return float64(sum)
}

// take waits for a slot. It returns false when ctx ends first.
func (s *Sealer) take(ctx context.Context) bool {
	select {
	case s.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Sealer) give() { <-s.slots }
