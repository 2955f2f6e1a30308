// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseview

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// checkInterval is how often the copy's freshness is looked at.
const checkInterval = time.Second

// Start fills the copy and keeps it fresh until ctx ends. Then it ends all reads and waits and returns when every
// goroutine of the view has. A view is started once.
func (v *View) Start(ctx context.Context) error {
	if !v.started.CompareAndSwap(false, true) {
		return errors.New("start lease view: it has been started before")
	}
	var reflectors sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		v.end(ErrStopped)
		cancel()
		v.reads.stop()
		reflectors.Wait()
	}()
	ticker := v.opts.Clock.NewTicker(checkInterval)
	defer ticker.Stop()

	for {
		next := newStore(v.opts.Clock, v.opts.OnBehind, v.opts.Holders)
		reflectorCtx, stopReflector := context.WithCancel(ctx)
		reflectors.Go(func() { v.newReflector(ctx, next).RunWithContext(reflectorCtx) })
		select {
		case <-next.synced:
			v.replace(next)
		case <-ctx.Done():
			stopReflector()
			return nil
		}
		reason := v.follow(ctx, next, ticker.C())
		// Nothing may change in this copy once the list that replaces it has begun.
		next.freeze()
		stopReflector()
		if reason == "" {
			return nil
		}
		v.opts.Metrics.relisted(reason)
		klog.FromContext(ctx).Info("Replacing the copy of the FencedLeases", "reason", reason)
	}
}

// follow returns why the copy must be replaced, or "" when ctx ends.
func (v *View) follow(ctx context.Context, s *store, tick <-chan time.Time) string {
	synced := v.opts.Clock.Now()
	for {
		select {
		case <-ctx.Done():
			return ""
		case <-v.wake:
		case <-tick:
		}
		// Too soon after the last one: the need stays, and with it a later tick.
		if v.opts.Clock.Since(synced) < v.opts.RelistInterval {
			continue
		}
		if reason := s.stale(v.opts.MaxLag, v.opts.MaxSilence); reason != "" {
			return reason
		}
	}
}

// replace puts the next copy in the place of the frozen one. The next copy comes from a consistent list that began after
// the freeze, so a lower lease in it proves that the store went back.
func (v *View) replace(next *store) {
	old := v.current.Swap(next)
	old.retire()
	for _, obj := range old.items.List() {
		if was, ok := obj.(*v1alpha1.FencedLease); ok {
			old.compare(was, next.get(keyOf(was)))
		}
	}
}

func (v *View) newReflector(ctx context.Context, s *store) *cache.Reflector {
	logger := klog.FromContext(ctx)
	return cache.NewReflectorWithOptions(&consistentSource{
		ListerWatcherWithContext: cache.ToListerWatcherWithContext(v.opts.Source),
		source:                   v.opts.Source,
	}, &v1alpha1.FencedLease{}, s, cache.ReflectorOptions{
		Logger: &logger,
		Name:   "leaseview",
		Clock:  v.opts.Clock,
		// Retry sooner than the default: until the copy is back, no guarded write can be judged.
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Cap: 5 * time.Second, Steps: 6, Factor: 2, Jitter: 0.5},
	})
}

// consistentSource makes the lists of a reflector consistent reads: a reflector asks for "any age" (resourceVersion 0) to
// spare etcd, and an API server may then answer with what it had before a restore. It also makes the reflector list again
// when a watch has ended, rather than go on with another one from the version that it has: a store that was restored in
// between has come as far again meanwhile, and no event tells of what is different before that.
type consistentSource struct {
	cache.ListerWatcherWithContext
	source cache.ListerWatcher
	// watched says that there has been a watch since the last list. Only the reflector's goroutine uses it.
	watched bool
}

var (
	_ cache.ListerWatcher            = (*consistentSource)(nil)
	_ cache.ListerWatcherWithContext = (*consistentSource)(nil)
)

func (c *consistentSource) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.ResourceVersion == "0" {
		options.ResourceVersion = ""
	}
	c.watched = false
	return c.ListerWatcherWithContext.ListWithContext(ctx, options)
}

// WatchWithContext answers the second watch after a list as one whose version is too old. A watch that begins with a list
// is its own.
func (c *consistentSource) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	lists := ptr.Deref(options.SendInitialEvents, false)
	if c.watched && !lists {
		c.watched = false
		return nil, apierrors.NewResourceExpired("the watch of FencedLeases has ended: they are listed again, as the store may have been restored")
	}
	c.watched = true
	return c.ListerWatcherWithContext.WatchWithContext(ctx, options)
}

// List is there for the interface; reflectors call ListWithContext.
func (c *consistentSource) List(options metav1.ListOptions) (runtime.Object, error) {
	return c.ListWithContext(context.Background(), options) //nolint:forbidigo // the interface passes none
}

// Watch is there for the interface; reflectors call WatchWithContext.
func (c *consistentSource) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return c.WatchWithContext(context.Background(), options) //nolint:forbidigo // the interface passes none
}

// IsWatchListSemanticsUnSupported passes on whether the source can stream its first list.
func (c *consistentSource) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(c.source)
}

// ReaderFunc makes a function a Reader.
type ReaderFunc func(ctx context.Context, key types.NamespacedName) (*v1alpha1.FencedLease, error)

// Get calls the function.
func (f ReaderFunc) Get(ctx context.Context, key types.NamespacedName) (*v1alpha1.FencedLease, error) {
	return f(ctx, key)
}
