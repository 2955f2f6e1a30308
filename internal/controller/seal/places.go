// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
)

var namespaces = Target{Resource: corev1.SchemeGroupVersion.WithResource("namespaces")}

// places are the labels of namespaces, for guards that select by them. As an API server's own, they may be a moment old.
type places struct {
	mu sync.RWMutex
	by map[string]labels.Set
}

// labels returns the labels of a namespace, as they were last seen.
func (p *places) labels(name string) labels.Set {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.by[name]
}

// watchPlaces lists namespaces, and watches them: when one comes to be guarded, its objects are looked through. Nothing is
// read if no guard depends on it.
func (s *session) watchPlaces(ctx context.Context, targets []Target) (*places, error) {
	known := &places{by: map[string]labels.Set{}}
	if !slices.ContainsFunc(targets, Target.selective) {
		return known, nil
	}
	// From the API server, linearizable.
	list, err := namespaces.in(s.sealer.options.Objects, "").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	for i := range list.Items {
		known.by[list.Items[i].Name] = list.Items[i].Labels
	}
	s.tasks.Go(func() {
		err := follow(ctx, namespaces.in(s.sealer.options.Objects, ""), list.ResourceVersion, func(what watch.EventType, namespace *metav1.PartialObjectMetadata) {
			s.placed(ctx, targets, known, what, namespace)
		})
		if err != nil && ctx.Err() == nil {
			s.fail(fmt.Errorf("watch namespaces: %w", err))
		}
	})
	return known, nil
}

// placed takes one event of a namespace into account.
func (s *session) placed(ctx context.Context, targets []Target, known *places, what watch.EventType, namespace *metav1.PartialObjectMetadata) {
	name, now := namespace.Name, labels.Set(namespace.Labels)
	known.mu.Lock()
	before, existed := known.by[name]
	if what == watch.Deleted {
		delete(known.by, name)
	} else {
		known.by[name] = now
	}
	known.mu.Unlock()
	if what == watch.Deleted || existed && equality.Semantic.DeepEqual(before, now) {
		return
	}
	for _, t := range targets {
		if t.Namespace != "" || !t.selective() || !t.reaches(name, now) {
			continue
		}
		s.tasks.Go(func() {
			err := s.sweep(ctx, sweep{target: t, namespace: name, places: known, listed: func(string) {}, remaining: func(int64) {}})
			if err != nil && ctx.Err() == nil {
				s.fail(err)
			}
		})
	}
}
