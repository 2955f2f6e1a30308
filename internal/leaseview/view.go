// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseview

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// Reader reads one lease from the server.
type Reader interface {
	// Get returns the lease as of a linearizable read that begins after the call, or an error for which
	// apierrors.IsNotFound tells that there is none. It returns when ctx ends.
	Get(ctx context.Context, key types.NamespacedName) (*v1alpha1.FencedLease, error)
}

// Options configure a View.
type Options struct {
	// Reader makes the linearizable reads. Required; see NewReader.
	Reader Reader

	// Source lists and watches the FencedLeases of all namespaces. Required; see NewSource.
	Source cache.ListerWatcher

	// Clock defaults to the real one.
	Clock clock.WithTickerAndDelayedExecution

	// Metrics count the reads. They are not registered here. Default: metrics that nobody sees.
	Metrics *Metrics

	// Holders measures the holders of what the copy sees. Its metrics are not registered here. Default: a Holders that
	// nobody sees.
	Holders *Holders

	// OnBehind is called with a lease that the copy had and a lower one that the store has shown after it: the store went
	// back, and generations up to cached's were handed out. It is called once per lease and copy, from the goroutine that
	// noticed; it must return soon and must not change the leases. Optional.
	OnBehind func(key types.NamespacedName, cached, read *v1alpha1.FencedLease)

	// ReadTimeout bounds one shared read. A caller may have to wait for the rest of one read and for the whole of the
	// next, so less than half of the webhook's timeout is right. Defaults to 2 s.
	ReadTimeout time.Duration

	// MaxLag is for how long the copy may lack what a read has shown before it is not ready and is replaced. Defaults to
	// 10 s.
	MaxLag time.Duration

	// MaxSilence is for how long the copy may hear nothing before it is not ready and is replaced. On a quiet watch API
	// servers send a first bookmark after two minutes and then one every minute. Defaults to 5 min.
	MaxSilence time.Duration

	// RelistInterval is the least time between two replacements of the copy. Defaults to 5 s.
	RelistInterval time.Duration
}

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if o.Holders == nil {
		o.Holders = NewHolders(o.Clock)
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&o.ReadTimeout, 2 * time.Second},
		{&o.MaxLag, 10 * time.Second},
		{&o.MaxSilence, 5 * time.Minute},
		{&o.RelistInterval, 5 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
}

// View is what a replica knows of FencedLeases. The leases that it returns are shared: callers must not change them.
type View struct {
	opts  Options
	reads *sharedReads

	// current is the copy that answers.
	current atomic.Pointer[store]
	// wake tells Start that the copy must be replaced at once.
	wake    chan struct{}
	started atomic.Bool
	// ended ends all reads and waits.
	ended context.Context //nolint:containedctx // the life of the view, not of a call
	end   context.CancelCauseFunc
}

// New returns a view. Fresh works from now on; everything that needs the copy works after Start has listed the leases.
func New(opts Options) (*View, error) {
	if opts.Reader == nil || opts.Source == nil {
		return nil, errors.New("create lease view: Reader and Source are required")
	}
	opts.setDefaults()
	v := &View{opts: opts, wake: make(chan struct{}, 1)}
	v.ended, v.end = context.WithCancelCause(context.Background()) //nolint:forbidigo // ends in Start
	v.reads = &sharedReads{
		read: v.read, timeout: opts.ReadTimeout, clock: opts.Clock, base: v.ended,
		slots: map[types.NamespacedName]*slot{},
	}
	// An empty copy, never synced, answers until the first list.
	v.current.Store(newStore(opts.Clock, nil, opts.Holders))
	return v, nil
}

// NeedLeaderElection is false: the webhook serves on every replica.
func (v *View) NeedLeaderElection() bool { return false }

// Ready returns nil while the copy is synced and fresh. It is for the readiness probe.
func (v *View) Ready() error {
	if v.ended.Err() != nil {
		return ErrStopped
	}
	s := v.current.Load()
	if !s.isReady() {
		return ErrNotSynced
	}
	if reason := s.stale(v.opts.MaxLag, v.opts.MaxSilence); reason != "" {
		return fmt.Errorf("the copy of the leases is being replaced: it is %s", reason)
	}
	return nil
}

// Cached returns the copy's lease, which may be of any age, and whether there is one. It may make a verdict stricter,
// never looser.
func (v *View) Cached(key types.NamespacedName) (*v1alpha1.FencedLease, bool) {
	lease := v.current.Load().get(key)
	return lease, lease != nil
}

// Fresh returns the lease as of a linearizable read that was started after the call of Fresh, shared with other calls. The
// error is a NotFound of the API server if there was no such lease then. It returns when ctx ends, at the latest.
func (v *View) Fresh(ctx context.Context, key types.NamespacedName) (*v1alpha1.FencedLease, error) {
	lease, err := v.reads.get(ctx, key)
	v.opts.Metrics.answered(err)
	return lease, err
}

// Guarding returns the leases that may guard objects of a resource in a namespace, which is empty for cluster-scoped ones:
// the leases of that namespace with a guard for their own namespace, and the leases of any namespace with a guard that has
// a namespaceSelector. The caller evaluates selectors and subresources. The answer comes from the copy: it is as new as the
// resourceVersion that WaitFor last returned for. It is ErrNotSynced before the first list, for "nobody" would then be a
// guess.
func (v *View) Guarding(gr schema.GroupResource, namespace string) ([]*v1alpha1.FencedLease, error) {
	s := v.current.Load()
	if !s.isReady() {
		return nil, fmt.Errorf("look up guards of %s: %w", gr, ErrNotSynced)
	}
	return s.guarding(gr, namespace)
}

// WaitFor returns nil once the copy holds every change of FencedLeases up to resourceVersion, or any list at all if it is
// empty. What the copy answers afterwards is at least as new, unless the store goes back. It returns an error when ctx
// ends.
func (v *View) WaitFor(ctx context.Context, resourceVersion string) error {
	if resourceVersion != "" {
		if _, err := resourceversion.CompareResourceVersion(resourceVersion, resourceVersion); err != nil {
			return fmt.Errorf("wait for leases: %w", err)
		}
	}
	for {
		ok, changed := v.current.Load().reached(resourceVersion)
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for leases up to resourceVersion %q: %w", resourceVersion, context.Cause(ctx))
		case <-v.ended.Done():
			return fmt.Errorf("wait for leases up to resourceVersion %q: %w", resourceVersion, ErrStopped)
		}
	}
}

// read makes one linearizable read and compares it with what the copy had when it began.
func (v *View) read(ctx context.Context, key types.NamespacedName) (*v1alpha1.FencedLease, error) {
	s := v.current.Load()
	before := s.get(key)
	begin := v.opts.Clock.Now()
	lease, err := v.opts.Reader.Get(ctx, key)
	if err == nil && lease == nil {
		err = errors.New("the reader returned no lease")
	}
	v.opts.Metrics.read(err, v.opts.Clock.Since(begin))
	if err != nil {
		// A NotFound proves nothing about the store: leases are deleted.
		return nil, err
	}
	if s.observe(before, lease) {
		select {
		case v.wake <- struct{}{}:
		default:
		}
	}
	return lease, nil
}

// result names the result of a read for a metric's label.
func result(err error) string {
	var abandoned *abandonedError
	switch {
	case err == nil:
		return resultOK
	case errors.As(err, &abandoned):
		return resultAbandoned
	case apierrors.IsNotFound(err):
		return resultNotFound
	default:
		return resultError
	}
}
