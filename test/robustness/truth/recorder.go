// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package truth records every committed state of guarded objects and leases, from the store itself: neither an API server
// nor the product stands between.
package truth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencedlease/fencedlease/test/robustness/history"
)

const (
	// patience is how long a watch may be silent before another member is asked. Holders renew far more often.
	patience = 3 * time.Second
	// retryPause is the pause between two attempts.
	retryPause = 50 * time.Millisecond
	// syncKey is written to see that everything before has been seen.
	syncKey = "/fencedlease-robustness/sync"
)

// Recorder records the committed states of one run.
type Recorder struct {
	log     *history.Log
	members []*store

	mu       sync.Mutex
	epoch    int
	next     int64 // the revision that the watch goes on with
	seen     int64 // the last revision that was recorded
	advanced chan struct{}
	err      error
	stop     context.CancelFunc
	done     chan struct{}
	events   int
}

// Start records from the present state on.
func Start(ctx context.Context, dir string, members []string) (*Recorder, error) {
	log, err := history.Append(history.TruthFile(dir))
	if err != nil {
		return nil, err
	}
	r := &Recorder{log: log, advanced: make(chan struct{})}
	for _, url := range members {
		r.members = append(r.members, newStore(url))
	}
	_, revision, err := r.members[0].read(ctx, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the store: %w", err), log.Close())
	}
	if err := r.begin(ctx, 0, revision); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return r, nil
}

// begin records what is stored at a revision, and everything later.
func (r *Recorder) begin(ctx context.Context, epoch int, base int64) error {
	stored, _, err := r.members[0].read(ctx, base)
	if err != nil {
		return fmt.Errorf("read the store: %w", err)
	}
	now := history.Now()
	for _, kv := range stored {
		event, err := parse(kv, kv.ModRevision == kv.CreateRevision)
		if err != nil {
			return err
		}
		if event == nil {
			continue
		}
		event.Epoch, event.Revision, event.Initial, event.Observed = epoch, kv.ModRevision, true, now
		if err := r.log.Write(event); err != nil {
			return err
		}
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.mu.Lock()
	r.epoch, r.seen, r.next, r.stop, r.done = epoch, base, base+1, stop, make(chan struct{})
	r.mu.Unlock()
	go r.run(running, r.done)
	return nil
}

// run watches, by one member after the other.
func (r *Recorder) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	for i := 0; ctx.Err() == nil; i++ {
		member := r.members[i%len(r.members)]
		err := member.watch(ctx, r.next, patience, func(changes []change) error { return r.record(changes, history.Now()) })
		if errors.Is(err, errLost) || errors.Is(err, errRecord) {
			r.mu.Lock()
			r.err = err
			close(r.advanced)
			r.advanced = make(chan struct{})
			r.mu.Unlock()
			return
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
}

// errRecord means that what was committed could not be recorded.
var errRecord = errors.New("record a commit")

func (r *Recorder) record(changes []change, now int64) error {
	if len(changes) == 0 {
		return nil
	}
	for _, change := range changes {
		if change.KV.ModRevision < r.next {
			return fmt.Errorf("%w: revision %d comes after %d", errRecord, change.KV.ModRevision, r.next)
		}
		kv := change.KV
		deleted := change.Type == "DELETE"
		if deleted {
			if change.Previous == nil {
				if parsed(kv.Key) {
					return fmt.Errorf("%w: no last state of %s", errRecord, kv.Key)
				}
				continue
			}
			kv.Value = change.Previous.Value
		}
		event, err := parse(kv, !deleted && kv.CreateRevision == kv.ModRevision)
		if err != nil {
			return fmt.Errorf("%w: %w", errRecord, err)
		}
		if event == nil {
			continue
		}
		event.Epoch, event.Revision, event.Observed, event.Deleted = r.epoch, kv.ModRevision, now, deleted
		if err := r.log.Write(event); err != nil {
			return fmt.Errorf("%w: %w", errRecord, err)
		}
		r.events++
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// All changes of a revision come together.
	r.seen = changes[len(changes)-1].KV.ModRevision
	r.next = r.seen + 1
	close(r.advanced)
	r.advanced = make(chan struct{})
	return nil
}

// Sync returns when everything that was committed before it was called has been recorded.
func (r *Recorder) Sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var revision int64
	for i := 0; revision == 0; i++ {
		var err error
		if revision, err = r.members[i%len(r.members)].put(ctx, syncKey); err != nil {
			select {
			case <-time.After(retryPause):
			case <-ctx.Done():
				return fmt.Errorf("write to the store: %w: %w", context.Cause(ctx), err)
			}
		}
	}
	for {
		r.mu.Lock()
		seen, advanced, err := r.seen, r.advanced, r.err
		r.mu.Unlock()
		switch {
		case err != nil:
			return err
		case seen >= revision:
			return nil
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return fmt.Errorf("wait for revision %d, %d was seen: %w", revision, seen, context.Cause(ctx))
		}
	}
}

// EndEpoch records what is left and stops: the store is about to be restored, and nobody writes to it any more.
func (r *Recorder) EndEpoch(ctx context.Context) error {
	if err := r.Sync(ctx); err != nil {
		return err
	}
	r.stop()
	<-r.done
	return nil
}

// NextEpoch records from what the store was restored to, at a revision of its own.
func (r *Recorder) NextEpoch(ctx context.Context, base int64) error {
	return r.begin(ctx, r.epoch+1, base)
}

// Close ends the recording. Whoever needs everything calls Sync before.
func (r *Recorder) Close() error {
	r.stop()
	<-r.done
	return errors.Join(r.err, r.log.Close())
}

// Events returns how many commits have been recorded.
func (r *Recorder) Events() int { return r.events }
