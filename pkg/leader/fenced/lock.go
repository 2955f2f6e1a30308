// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/resourcelock"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// errStoppedLeading is why writes of a lock's term are held back. The lock's own error goes to the elector.
var errStoppedLeading = errors.New("the elector has stopped leading")

// OfLock returns the possession of the term that a lock holds now, for client-go's LeaderElector: call it when
// OnStartedLeading begins, and use what it returns for all the work that the callback starts. It fails if the lock holds no
// term.
//
// The possession ends when the elector's next request, or its release, shows it; it does not look at the clock. What is
// written until then is refused by the API server.
func OfLock(lock *resourcelock.Lock) (Possession, error) {
	term, held := lock.Term()
	if !held {
		return nil, fmt.Errorf("present the token of FencedLease %s: %w", lock.Lease(), resourcelock.ErrNotHeld)
	}
	return OfTerm(lock, term), nil
}

// OfTerm is OfLock for a term that was taken from the lock before, and may have ended since.
func OfTerm(lock *resourcelock.Lock, term resourcelock.Term) Possession {
	return &lockPossession{lock: lock, term: term}
}

// lockPossession is one term of a lock.
type lockPossession struct {
	lock *resourcelock.Lock
	term resourcelock.Term
}

func (p *lockPossession) Lease() types.NamespacedName { return p.lock.Lease() }
func (p *lockPossession) Token() token.Token          { return p.term.Token() }
func (p *lockPossession) Guards() []v1alpha1.Guard    { return p.lock.Guards() }

// Err returns nil while the lock holds the term, and not another one.
func (p *lockPossession) Err() error {
	if now, held := p.lock.Term(); !held || now.UID != p.term.UID || now.Generation != p.term.Generation || now.ID != p.term.ID {
		return errStoppedLeading
	}
	return nil
}
