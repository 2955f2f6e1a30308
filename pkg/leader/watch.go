// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/possession"
)

const (
	// A watch that has failed is made again after 0.2 to 0.4 seconds, later up to 8 to 16.
	watchRetry      = 200 * time.Millisecond
	watchRetryCap   = 8 * time.Second
	watchRetryReset = time.Minute

	// watchBegin is how long the API server may take to begin a watch. Some proxies hold it back until the first event.
	watchBegin = time.Minute
)

func watchBackoff() wait.Backoff {
	return wait.Backoff{Duration: watchRetry, Cap: watchRetryCap, Factor: 2, Jitter: 1, Steps: 10}
}

// watch keeps the view up to date until ctx ends.
func (r *run) watch(ctx context.Context) {
	logger := klog.FromContext(ctx)
	backoff := watchBackoff()
	reflector := cache.NewReflectorWithOptions(&source{client: r.watches, clock: r.options.Clock}, &v1alpha1.FencedLease{}, (*store)(r.view), cache.ReflectorOptions{
		Logger: &logger, Name: "fencedlease " + r.watches.String(), Clock: r.options.Clock, Backoff: &backoff,
	})
	delay := watchBackoff().DelayWithReset(r.options.Clock, watchRetryReset)
	for ctx.Err() == nil {
		// An error says that no watch came about. A watch that was there and ended is no error.
		if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
			r.view.watching(explain(r.watches, err))
		}
		pause := r.options.Clock.NewTimer(delay())
		select {
		case <-ctx.Done():
		case <-pause.C():
		}
		pause.Stop()
	}
}

// source lists and watches the lease for a reflector.
type source struct {
	client possession.Client
	clock  clock.Clock
	// unlisted is how the last watch that began with a list failed. The reflector asks for a list after that.
	unlisted error
}

var _ cache.ListerWatcherWithContext = (*source)(nil)

// List is not called: a reflector takes ListWithContext.
func (s *source) List(metav1.ListOptions) (runtime.Object, error) {
	return nil, errors.New("list without a context")
}

// Watch is not called: a reflector takes WatchWithContext.
func (s *source) Watch(metav1.ListOptions) (watch.Interface, error) {
	return nil, errors.New("watch without a context")
}

// ListWithContext lists the lease for servers that do not stream lists. For others it repeats how the stream failed: a list
// would need a verb more and fail the same way.
func (s *source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if s.unlisted != nil && !apierrors.IsInvalid(s.unlisted) {
		return nil, s.unlisted
	}
	return s.client.List(ctx, options)
}

// WatchWithContext watches the lease.
func (s *source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := s.begin(ctx, options)
	if options.SendInitialEvents == nil {
		return w, err
	}
	s.unlisted = err
	if err == nil {
		s.unlisted = errStreamEnded // if the reflector asks for a list after this
		return w, nil
	}
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return nil, err // the reflector begins at another resourceVersion
	}
	// For some errors the reflector would wait and not notice the end of ctx. It does not know this one.
	return nil, fmt.Errorf("stream the lease: %v", err) //nolint:errorlint // see above; ListWithContext has the error
}

// begin makes a watch. One that does not begin in time is given up, as its connection may be dead; one that has begun has no
// limit.
func (s *source) begin(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	begun := make(chan struct{})
	go func() {
		timer := s.clock.NewTimer(watchBegin)
		defer timer.Stop()
		select {
		case <-begun:
		case <-timer.C():
			cancel(errNoStream)
		}
	}()
	w, err := s.client.Watch(ctx, options)
	close(begun)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &begunWatch{Interface: w, end: cancel}, nil
}

// begunWatch is a watch with its context.
type begunWatch struct {
	watch.Interface
	end context.CancelCauseFunc
}

// Stop ends the watch.
func (w *begunWatch) Stop() {
	w.Interface.Stop()
	w.end(nil)
}

var errNoStream = errors.New("the API server did not begin the watch in time")

var errStreamEnded = errors.New("the stream of the lease ended before it was complete")

// store takes what a reflector finds into the view.
type store view

var _ cache.ReflectorStore = (*store)(nil)

// Add takes note of the lease.
func (s *store) Add(object any) error { return s.Update(object) }

// Update takes note of the lease.
func (s *store) Update(object any) error {
	lease, ok := object.(*v1alpha1.FencedLease)
	if !ok {
		return fmt.Errorf("%T is no FencedLease", object)
	}
	(*view)(s).saw(lease)
	return nil
}

// Delete takes note that the lease is gone. The object shows the revision of the deletion.
func (s *store) Delete(object any) error {
	lease, ok := object.(*v1alpha1.FencedLease)
	if !ok {
		return fmt.Errorf("%T is no FencedLease", object)
	}
	(*view)(s).gone(lease.ResourceVersion)
	return nil
}

// Replace takes note of a list.
func (s *store) Replace(objects []any, revision string) error {
	(*view)(s).watching(nil)
	for _, object := range objects {
		return s.Update(object) // there is one at most
	}
	(*view)(s).gone(revision)
	return nil
}

// Resync has nothing to do.
func (s *store) Resync() error { return nil }
