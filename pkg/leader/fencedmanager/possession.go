// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencedmanager

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/resourcelock"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// possession is the manager's one term: the first that its lock holds.
type possession struct {
	lock *resourcelock.Lock

	mu    sync.Mutex
	first fenced.Possession
	term  resourcelock.Term
}

var _ fenced.Pending = &possession{}

// begun returns the manager's term, from the moment on that the elector leads, and for ever after. It is nil before.
func (p *possession) begun() fenced.Possession {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == nil {
		if term, held := p.lock.Term(); held {
			p.term = term
			p.first = fenced.OfTerm(p.lock, term)
		}
	}
	return p.first
}

// Pending reports that no term has begun: writes go out as they are, and what is guarded is refused by the API server.
func (p *possession) Pending() bool { return p.begun() == nil }

// Lease names the FencedLease.
func (p *possession) Lease() types.NamespacedName { return p.lock.Lease() }

// Token returns the token of the manager's term.
func (p *possession) Token() token.Token {
	if first := p.begun(); first != nil {
		return first.Token()
	}
	return token.Token{}
}

// Err returns nil while the lock holds the manager's term.
func (p *possession) Err() error {
	if first := p.begun(); first != nil {
		return first.Err()
	}
	return nil
}

// Guards returns the guards as the lock last saw them.
func (p *possession) Guards() []v1alpha1.Guard { return p.lock.Guards() }

// Term returns the term under which this manager leads or has led, and whether there has been one.
func (m *Manager) Term() (resourcelock.Term, bool) {
	led := m.possession.begun() != nil
	return m.possession.term, led
}
