// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package barrier

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

func object(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "reports", Name: name, ResourceVersion: version}}
}

// informer is one whose content the test decides.
type informer struct {
	handlers []cache.ResourceEventHandler
	synced   chan struct{}
	shows    []*metav1.PartialObjectMetadata
	err      error
}

func (i *informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	if i.err != nil {
		return nil, i.err
	}
	i.handlers = append(i.handlers, handler)
	for _, o := range i.shows {
		handler.OnAdd(o, true)
	}
	return registration{i.synced}, nil
}

func (i *informer) RemoveEventHandler(cache.ResourceEventHandlerRegistration) error {
	i.handlers = nil
	return nil
}

func (i *informer) sync() { close(i.synced) }

type registration struct{ synced chan struct{} }

func (r registration) HasSynced() bool                     { return true }
func (r registration) HasSyncedChecker() cache.DoneChecker { return r }
func (r registration) Name() string                        { return "test" }
func (r registration) Done() <-chan struct{}               { return r.synced }

// stored lists what is stored, one object a page.
func stored(version string, objects ...*metav1.PartialObjectMetadata) Lister {
	return func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if options.ResourceVersion != "" {
			return nil, errors.New("not a consistent read")
		}
		page := options.Continue
		list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
		if n := len(page); n < len(objects) {
			list.Items = append(list.Items, *objects[n])
			if n+1 < len(objects) {
				list.Continue = strings.Repeat("x", n+1)
			}
		}
		return list, nil
	}
}

func TestWaitForTheCache(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stored Lister
		shows  []*metav1.PartialObjectMetadata
		// then happens after the wait has begun, which must not have ended before.
		then func(cache.ResourceEventHandler)
	}{
		"nothing is stored and nothing shown": {stored: stored("100")},
		"the cache shows what is stored":      {stored: stored("100", object("a", "90"), object("b", "95")), shows: []*metav1.PartialObjectMetadata{object("a", "90"), object("b", "95")}},
		"the cache is newer":                  {stored: stored("100", object("a", "90")), shows: []*metav1.PartialObjectMetadata{object("a", "101"), object("b", "102")}},
		"an older object": {
			stored: stored("100", object("a", "90"), object("b", "95")), shows: []*metav1.PartialObjectMetadata{object("a", "90"), object("b", "94")},
			then: func(h cache.ResourceEventHandler) { h.OnUpdate(object("b", "94"), object("b", "95")) },
		},
		"a missing object": {
			stored: stored("100", object("a", "90"), object("b", "95")), shows: []*metav1.PartialObjectMetadata{object("a", "90")},
			then: func(h cache.ResourceEventHandler) { h.OnAdd(object("b", "95"), false) },
		},
		"an object that was deleted": {
			stored: stored("100", object("a", "90")), shows: []*metav1.PartialObjectMetadata{object("a", "90"), object("b", "95")},
			then: func(h cache.ResourceEventHandler) { h.OnDelete(object("b", "98")) },
		},
		"an object that was deleted, and whose deletion the cache has missed": {
			stored: stored("100", object("a", "90")), shows: []*metav1.PartialObjectMetadata{object("a", "90"), object("b", "95")},
			then: func(h cache.ResourceEventHandler) {
				h.OnDelete(cache.DeletedFinalStateUnknown{Key: "reports/b", Obj: object("b", "95")})
			},
		},
		"an object that was deleted before and created anew since": {
			stored: stored("100", object("a", "90")), shows: []*metav1.PartialObjectMetadata{object("a", "90"), object("b", "95")},
			then: func(h cache.ResourceEventHandler) { h.OnUpdate(object("b", "95"), object("b", "103")) },
		},
		"an object that was stored and is deleted since": {
			stored: stored("100", object("a", "90"), object("b", "95")), shows: []*metav1.PartialObjectMetadata{object("a", "90"), object("b", "94")},
			then: func(h cache.ResourceEventHandler) { h.OnDelete(object("b", "104")) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				i := &informer{synced: make(chan struct{}), shows: test.shows}
				done := make(chan error, 1)
				go func() { done <- Wait(t.Context(), i, test.stored) }()
				synctest.Wait()
				if len(done) > 0 {
					t.Fatal("the wait has ended before the informer had told what it has")
				}
				i.sync()
				synctest.Wait()
				if test.then != nil {
					if len(done) > 0 {
						t.Fatal("the wait has ended while the cache was behind")
					}
					test.then(i.handlers[0])
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if len(i.handlers) > 0 {
					t.Error("the handler is still there")
				}
			})
		})
	}
}

func TestAWaitFails(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		informer *informer
		list     Lister
		want     string
	}{
		"the list fails": {
			&informer{}, func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, boom },
			"list what the cache must show: boom",
		},
		"the informer has stopped": {&informer{err: boom}, stored("100"), "watch the informer: boom"},
		"the cache does not catch up in time": {
			&informer{}, stored("100", object("a", "90"), object("b", "90")),
			"wait for the cache, 2 objects are behind: context deadline exceeded",
		},
		"a resourceVersion has no order": {
			&informer{shows: []*metav1.PartialObjectMetadata{object("a", "x")}}, stored("100", object("a", "90")),
			`compare what the cache shows: resource version is not well formed: x`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				test.informer.synced = make(chan struct{})
				test.informer.sync()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := Wait(ctx, test.informer, test.list)
				if err == nil {
					t.Fatal("the wait has succeeded")
				}
				if diff := cmp.Diff(test.want, err.Error()); diff != "" {
					t.Errorf("error (-want +got):\n%s", diff)
				}
			})
		})
	}
}
