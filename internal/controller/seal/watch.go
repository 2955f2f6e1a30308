// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// follow hands every event of objects after a version to handle, until ctx ends or the watch cannot go on. The watch has no
// selector and starts anew where it was interrupted, so an object is Added once only: when it is created.
func follow(ctx context.Context, objects metadata.ResourceInterface, version string, handle func(watch.EventType, *metav1.PartialObjectMetadata)) error {
	w, err := watchtools.NewRetryWatcherWithContext(ctx, version, watcher{objects})
	if err != nil {
		return fmt.Errorf("watch from version %q: %w", version, err)
	}
	defer func() { w.Stop(); <-w.Done() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-w.ResultChan():
			if !ok {
				return errors.New("the watch has ended")
			}
			if event.Type == watch.Error {
				return apierrors.FromObject(event.Object)
			}
			if object, ok := event.Object.(*metav1.PartialObjectMetadata); ok {
				handle(event.Type, object)
			}
		}
	}
}

// watcher is what a RetryWatcher watches with.
type watcher struct {
	objects metadata.ResourceInterface
}

var _ cache.WatcherWithContext = watcher{}

// WatchWithContext answers errors that no repetition mends by a watch that ends at once.
func (w watcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	watching, err := w.objects.Watch(ctx, options)
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !apierrors.IsNotFound(err) {
		return watching, err
	}
	ended := watch.NewRaceFreeFake()
	ended.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: err.Error()})
	return ended, nil
}

// watch stamps what appears with an older mark, or with none, after the list of the term's seal. Creates and writes that
// present the current token carry its mark already.
func (s *session) watch(ctx context.Context, t Target, version string, places *places) error {
	resource := t.Resource.GroupResource()
	ended := follow(ctx, t.in(s.sealer.options.Objects, t.Namespace), version, func(what watch.EventType, object *metav1.PartialObjectMetadata) {
		if what == watch.Deleted || !t.matches(object, places.labels) {
			return
		}
		needed, verdict := s.needsStamp(t, object)
		if !needed {
			return
		}
		s.whenFree(ctx, func() {
			if what == watch.Added && verdict == older {
				s.createdLate(ctx, t, object)
				return
			}
			if err := s.stampPlainly(ctx, t, object); err != nil {
				s.fail(err)
			}
		})
	})
	switch {
	case ended == nil:
		return nil
	case apierrors.IsForbidden(ended):
		// The RetryWatcher leaves the text of the answer out.
		return s.lacks("watch", resource, ended)
	default:
		return fmt.Errorf("watch %s: %w", resource, ended)
	}
}
