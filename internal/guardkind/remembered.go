// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package guardkind

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Remembered keeps the answers of another classifier until it is told to forget them. Whoever watches definitions of
// custom resources and APIServices tells it, so an answer is at most as old as that watch is behind.
type Remembered struct {
	next Classifier

	mu    sync.Mutex
	kinds map[schema.GroupResource]Kind
	// epoch counts the calls of Forget, so that an answer that was asked for before one is not kept after it.
	epoch int
}

var _ Classifier = &Remembered{}

// NewRemembered returns a classifier that keeps the answers of next.
func NewRemembered(next Classifier) *Remembered {
	return &Remembered{next: next, kinds: map[schema.GroupResource]Kind{}}
}

// Classify implements Classifier.
func (r *Remembered) Classify(ctx context.Context, group, resource string) (Kind, error) {
	gr := schema.GroupResource{Group: group, Resource: resource}
	r.mu.Lock()
	kind, known := r.kinds[gr]
	epoch := r.epoch
	r.mu.Unlock()
	if known {
		return kind, nil
	}
	kind, err := r.next.Classify(ctx, group, resource)
	if err != nil {
		return Kind{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.epoch == epoch {
		r.kinds[gr] = kind
	}
	return kind, nil
}

// Forget drops all answers.
func (r *Remembered) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	clear(r.kinds)
}
