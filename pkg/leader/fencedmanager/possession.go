// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencedmanager

import (
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/resourcelock"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// errLost is why writes of the manager's term are held back. The lock's own error goes to the elector.
var errLost = errors.New("the manager has stopped leading")

// possession is the manager's one term: the first that its lock holds.
type possession struct {
	lock *resourcelock.Lock

	mu    sync.Mutex
	first *resourcelock.Term
}

var (
	_ fenced.Possession = &possession{}
	_ fenced.Pending    = &possession{}
)

// term returns the manager's term, from the moment on that the elector leads, and for ever after.
func (p *possession) term() (resourcelock.Term, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == nil {
		if term, held := p.lock.Term(); held {
			p.first = &term
		}
	}
	if p.first == nil {
		return resourcelock.Term{}, false
	}
	return *p.first, true
}

// Pending reports that no term has begun: writes go out as they are, and what is guarded is refused by the API server.
func (p *possession) Pending() bool {
	_, begun := p.term()
	return !begun
}

// Lease names the FencedLease.
func (p *possession) Lease() types.NamespacedName { return p.lock.Lease() }

// Token returns the token of the manager's term.
func (p *possession) Token() token.Token {
	term, _ := p.term()
	return term.Token()
}

// Err returns nil while the lock holds the manager's term.
func (p *possession) Err() error {
	term, begun := p.term()
	if !begun {
		return nil
	}
	if now, held := p.lock.Term(); !held || now.Generation != term.Generation || now.ID != term.ID {
		return errLost
	}
	return nil
}

// Guards returns the guards as the lock last saw them.
func (p *possession) Guards() []v1alpha1.Guard { return p.lock.Guards() }
