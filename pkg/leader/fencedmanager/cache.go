// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencedmanager

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fencedlease/fencedlease/pkg/leader/barrier"
)

// useBarrier makes the manager's cache wait, at the first use of each kind in the term, until it is as new as the term.
func useBarrier(managed *manager.Options, p *possession) {
	newCache, newInformer := managed.NewCache, managed.Cache.NewInformer
	if newCache == nil {
		newCache = cache.New
	}
	if newInformer == nil {
		newInformer = toolscache.NewSharedIndexInformer
	}
	managed.NewCache = func(config *rest.Config, options cache.Options) (cache.Cache, error) {
		c := &barrierCache{
			begun: func() bool { return !p.Pending() }, scheme: options.Scheme,
			failOnMissing: options.ReaderFailOnMissingInformer, kinds: map[kind]*kindState{},
		}
		if c.scheme == nil {
			c.scheme = scheme.Scheme
		}
		options.NewInformer = func(source toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			informer := newInformer(source, obj, resync, indexers)
			c.made(obj, informer, source)
			return informer
		}
		var err error
		if c.Cache, err = newCache(config, options); err != nil {
			return nil, err
		}
		return c, nil
	}
}

// barrierCache is a cache that is as new as the term, from the term's beginning on.
type barrierCache struct {
	cache.Cache

	begun         func() bool
	scheme        *runtime.Scheme
	failOnMissing bool

	mu    sync.Mutex
	kinds map[kind]*kindState
}

// kind is a kind of objects in one of the forms in which a cache keeps them, each with informers of its own.
type kind struct {
	schema.GroupVersionKind
	form string
}

// kindState is what is known of a kind.
type kindState struct {
	// informers are those that the cache has made for it: one, or one for each namespace.
	informers []source
	// passing holds the place of the one caller that waits at the barrier.
	passing chan struct{}
	passed  atomic.Bool
}

type source struct {
	informer toolscache.SharedIndexInformer
	list     barrier.Lister
}

// Get reads an object.
func (c *barrierCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := c.pass(ctx, obj, false); err != nil {
		return err
	}
	return c.Cache.Get(ctx, key, obj, opts...)
}

// List reads objects.
func (c *barrierCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.pass(ctx, list, false); err != nil {
		return err
	}
	return c.Cache.List(ctx, list, opts...)
}

// GetInformer returns the informer of a kind.
func (c *barrierCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	informer, err := c.Cache.GetInformer(ctx, obj, opts...)
	if err != nil || !blocks(opts) {
		return informer, err
	}
	return informer, c.pass(ctx, obj, true)
}

// GetInformerForKind returns the informer of a kind.
func (c *barrierCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	informer, err := c.Cache.GetInformerForKind(ctx, gvk, opts...)
	if err != nil || !blocks(opts) {
		return informer, err
	}
	obj, err := c.scheme.New(gvk)
	if err != nil {
		return nil, fmt.Errorf("make an object of %s: %w", gvk, err)
	}
	return informer, c.pass(ctx, obj, true)
}

// RemoveInformer stops the informer of a kind.
func (c *barrierCache) RemoveInformer(ctx context.Context, obj client.Object) error {
	err := c.Cache.RemoveInformer(ctx, obj)
	if k, kindErr := c.kindOf(obj); err == nil && kindErr == nil {
		c.mu.Lock()
		delete(c.kinds, k)
		c.mu.Unlock()
	}
	return err
}

// blocks reports whether a caller waits for the informer to have synced. One that does not is not kept waiting here, either.
func blocks(opts []cache.InformerGetOption) bool {
	var o cache.InformerGetOptions
	for _, set := range opts {
		set(&o)
	}
	return o.BlockUntilSynced == nil || *o.BlockUntilSynced
}

// made takes note of an informer that the cache has made. It is not called while the cache looks a kind up that it has.
func (c *barrierCache) made(obj runtime.Object, informer toolscache.SharedIndexInformer, lw toolscache.ListerWatcher) {
	k, err := c.kindOf(obj)
	if err != nil {
		return // the cache has found the kind by the same scheme
	}
	s := c.state(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	s.informers = append(s.informers, source{informer, barrier.ListerOf(lw)})
}

// pass waits, once in the term, until the cache is as new as the term. there says that the informer is known to exist.
func (c *barrierCache) pass(ctx context.Context, obj runtime.Object, there bool) error {
	if !c.begun() {
		return nil
	}
	k, err := c.kindOf(obj)
	if err != nil {
		return nil // the cache itself says it better
	}
	s := c.state(k)
	if s.passed.Load() {
		return nil
	}
	select {
	case s.passing <- struct{}{}:
		defer func() { <-s.passing }()
	case <-ctx.Done():
		return fmt.Errorf("wait for the cache of %s to be as new as the term: %w", k.Kind, context.Cause(ctx))
	}
	if s.passed.Load() || (!there && !c.find(ctx, k, obj)) {
		return nil
	}
	c.mu.Lock()
	informers := append([]source(nil), s.informers...)
	c.mu.Unlock()
	for _, i := range informers {
		// The list is a consistent read by the API server that begins now, after the term has begun.
		if err := barrier.Wait(ctx, i.informer, i.list); err != nil {
			return fmt.Errorf("wait for the cache of %s to be as new as the term: %w", k.Kind, err)
		}
	}
	s.passed.Store(true)
	return nil
}

// find makes the cache have an informer of a kind, as a read of it would.
func (c *barrierCache) find(ctx context.Context, k kind, obj runtime.Object) bool {
	c.mu.Lock()
	known := len(c.kinds[k].informers) > 0
	c.mu.Unlock()
	if known || c.failOnMissing {
		return known
	}
	one, ok := obj.(client.Object)
	if !ok {
		one = c.objectOf(k)
	}
	if one == nil {
		return false
	}
	_, err := c.Cache.GetInformer(ctx, one)
	return err == nil // the read itself says what is wrong
}

func (c *barrierCache) state(k kind) *kindState {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.kinds[k]
	if !ok {
		s = &kindState{passing: make(chan struct{}, 1)}
		c.kinds[k] = s
	}
	return s
}

// kindOf returns the kind of an object, or of the items of a list.
func (c *barrierCache) kindOf(obj runtime.Object) (kind, error) {
	gvk, err := apiutil.GVKForObject(obj, c.scheme)
	if err != nil {
		return kind{}, err
	}
	if _, isList := obj.(client.ObjectList); isList {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	form := "typed"
	switch obj.(type) {
	case runtime.Unstructured:
		form = "unstructured"
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		form = "metadata"
	}
	return kind{gvk, form}, nil
}

// objectOf returns an empty object of a kind, or nil if the scheme does not know it.
func (c *barrierCache) objectOf(k kind) client.Object {
	switch k.form {
	case "unstructured":
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(k.GroupVersionKind)
		return o
	case "metadata":
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(k.GroupVersionKind)
		return o
	default:
		o, err := c.scheme.New(k.GroupVersionKind)
		if err != nil {
			return nil
		}
		object, _ := o.(client.Object)
		return object
	}
}
