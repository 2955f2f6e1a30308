// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package barrier lets a new leader wait until its caches are as new as its own acquisition.
//
// A follower's informers are warm, and may be behind: by a slow watch, or by an API server that lags. A leader that acts
// on them right after its acquisition works on objects that its predecessor has changed or deleted, and creates a second
// time what is there. The fence refuses none of that, as the new leader's token is current.
//
// Wait asks the API server what there is, by a consistent list that begins after the call, and returns once the informer
// has shown all of it. Call it after the acquisition and before the first decision that rests on a cache.
package barrier

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// Informer tells of the changes of a cache. Informers of client-go and of controller-runtime are Informers.
type Informer interface {
	AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
	RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error
}

// Lister lists what the informer watches: the same resource, namespaces and selectors. It is a consistent read if the
// options name no resourceVersion. A list of metadata alone is enough. See also ListerOf.
type Lister func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)

// ListerOf returns the Lister of what an informer was made with.
func ListerOf(source cache.ListerWatcher) Lister {
	return cache.ToListerWatcherWithContext(source).ListWithContext
}

// pageSize bounds what one list may hold in memory.
const pageSize = 500

// Wait returns nil once the informer has shown every object as it was when Wait was called, or newer, and none that was
// gone by then. It returns an error if the list fails, or when ctx ends before the informer has caught up.
func Wait(ctx context.Context, informer Informer, list Lister) error {
	present, version, err := read(ctx, list)
	if err != nil {
		return err
	}
	w := &watcher{present: present, behind: map[types.NamespacedName]bool{}, version: version, changed: make(chan struct{}, 1)}
	for key := range present {
		w.behind[key] = true
	}
	handle, err := informer.AddEventHandler(w)
	if err != nil {
		return fmt.Errorf("watch the informer: %w", err)
	}
	err = w.wait(ctx, handle.HasSyncedChecker().Done())
	return errors.Join(err, informer.RemoveEventHandler(handle))
}

// read returns the resourceVersions of what is stored, and that of the list.
func read(ctx context.Context, list Lister) (map[types.NamespacedName]string, string, error) {
	present := map[types.NamespacedName]string{}
	// Without a resourceVersion, so that nothing older than this call is shown. Later pages are of the same version.
	options := metav1.ListOptions{Limit: pageSize}
	for {
		objects, err := list(ctx, options)
		if err != nil {
			return nil, "", fmt.Errorf("list what the cache must show: %w", err)
		}
		page, err := meta.ListAccessor(objects)
		if err != nil {
			return nil, "", fmt.Errorf("list what the cache must show: %w", err)
		}
		err = meta.EachListItem(objects, func(o runtime.Object) error {
			key, version, err := identify(o)
			present[key] = version
			return err
		})
		if err != nil {
			return nil, "", fmt.Errorf("list what the cache must show: %w", err)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return present, page.GetResourceVersion(), nil
		}
	}
}

// watcher compares what an informer shows with what was stored.
type watcher struct {
	// present are the objects that were stored at version, by their resourceVersions.
	present map[types.NamespacedName]string
	version string

	mu sync.Mutex
	// behind are the objects that the informer does not show yet as they were, or still shows though they were gone.
	behind map[types.NamespacedName]bool
	err    error
	// changed gets a value when behind has become smaller, or err is set.
	changed chan struct{}
}

var _ cache.ResourceEventHandler = (*watcher)(nil)

// wait returns once the informer has told what it had, and nothing is behind.
func (w *watcher) wait(ctx context.Context, told <-chan struct{}) error {
	for {
		select {
		case <-told:
			told = nil
		case <-w.changed:
		case <-ctx.Done():
			w.mu.Lock()
			defer w.mu.Unlock()
			return fmt.Errorf("wait for the cache, %d objects are behind: %w", len(w.behind), context.Cause(ctx))
		}
		w.mu.Lock()
		n, err := len(w.behind), w.err
		w.mu.Unlock()
		if err != nil || (told == nil && n == 0) {
			return err
		}
	}
}

// OnAdd takes in an object that the cache shows. At first these are all that it has.
func (w *watcher) OnAdd(obj any, _ bool) { w.shows(obj) }

// OnUpdate takes in an object that the cache shows anew.
func (w *watcher) OnUpdate(_, obj any) { w.shows(obj) }

// OnDelete takes in an object that the cache no longer shows.
func (w *watcher) OnDelete(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	key, _, err := identify(obj)
	w.note(key, false, err)
}

func (w *watcher) shows(obj any) {
	key, version, err := identify(obj)
	if err != nil {
		w.note(key, false, err)
		return
	}
	// What is not in the list and older than it was deleted before; the informer has yet to notice.
	least, there := w.present[key]
	if !there {
		least = w.version
	}
	c, err := resourceversion.CompareResourceVersion(version, least)
	w.note(key, c < 0 || (!there && c == 0), err)
}

func (w *watcher) note(key types.NamespacedName, behind bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("compare what the cache shows: %w", err)
	}
	if behind {
		w.behind[key] = true
	} else {
		delete(w.behind, key)
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func identify(obj any) (types.NamespacedName, string, error) {
	o, err := meta.Accessor(obj)
	if err != nil {
		return types.NamespacedName{}, "", err
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}, o.GetResourceVersion(), nil
}
