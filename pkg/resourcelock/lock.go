// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/possession"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// defaultRenewDeadline is the one of client-go's core components and of controller-runtime.
const defaultRenewDeadline = 10 * time.Second

// Options are the choices of a Lock. The zero value is usable.
type Options struct {
	// EventRecorder records on the FencedLease that the lock's holder began and stopped leading. Nil records nothing.
	// For a recorder of the events.k8s.io API see EventsRecorder.
	EventRecorder resourcelock.EventRecorder

	// RenewDeadline is that of the elector. A single request of the lock may take half of it, but at least one second, so
	// that one lost answer does not cost the lead. Zero means 10 seconds. NewForClient does not use it: the timeout is the
	// client's.
	RenewDeadline time.Duration

	// CreateWith is the spec with which the lock creates a missing FencedLease. Nil means that the lock creates none and
	// waits for the operator to do it.
	CreateWith *v1alpha1.FencedLeaseSpec
}

// Lock is client-go's leader-election lock on a FencedLease. One elector uses a lock at a time; Term, Token, Lease, Guards,
// Identity and Describe may be called from any goroutine.
type Lock struct {
	leases   possession.Client
	identity string
	options  Options

	// mu guards what follows. It is not held during requests.
	mu sync.Mutex
	// decided is the lease as the elector's last Get returned it, live from the server. An acquisition is conditioned on
	// it, as it is what the elector judged to be free. It is nil after each Update.
	decided *v1alpha1.FencedLease
	// latest is the lease as any request last returned it. It serves events, messages and Guards.
	latest *v1alpha1.FencedLease
	// own is the term that this lock acquired, or nil.
	own *ownTerm
	// lost says how the last term ended, until the elector has been told at a release.
	lost *LostError
	// stopping is the loss that the elector, which believed in its term, has not answered by ceasing to lead.
	stopping *LostError
}

// ownTerm is a term of this lock and how far the elector knows of it.
type ownTerm struct {
	term Term
	// ready says that the term may write: it needed no seal, or is sealed.
	ready bool
	// handed says that the elector was told that it leads.
	handed bool
	// releasing says that a release has been sent, with whatever outcome.
	releasing bool
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns a lock on the FencedLease namespace/name for a holder called identity, which must differ for each process
// and be at most 253 characters long. It makes a client of its own from config, with the timeout that
// Options.RenewDeadline asks for.
func New(config *rest.Config, namespace, name, identity string, options Options) (*Lock, error) {
	limited := rest.CopyConfig(config)
	deadline := options.RenewDeadline
	if deadline <= 0 {
		deadline = defaultRenewDeadline
	}
	limited.Timeout = max(deadline/2, time.Second)
	client, err := NewClient(limited)
	if err != nil {
		return nil, err
	}
	return NewForClient(client, namespace, name, identity, options)
}

// NewForClient is New with a client of the API group version of FencedLease, such as NewClient makes. Its requests must
// end well within the elector's RenewDeadline.
func NewForClient(client rest.Interface, namespace, name, identity string, options Options) (*Lock, error) {
	switch {
	case client == nil:
		return nil, errors.New("make a lock: the client is missing")
	case namespace == "" || name == "":
		return nil, fmt.Errorf("make a lock: the FencedLease %q/%q needs a namespace and a name", namespace, name)
	case len(name) > v1alpha1.MaxNameLength:
		return nil, fmt.Errorf("make a lock: the name of FencedLease %s/%s has %d characters, at most %d are allowed", namespace, name, len(name), v1alpha1.MaxNameLength)
	case identity == "":
		return nil, fmt.Errorf("make a lock on FencedLease %s/%s: the identity is empty", namespace, name)
	case len(identity) > possession.MaxIdentityLength:
		return nil, fmt.Errorf("make a lock on FencedLease %s/%s: the identity has %d characters, at most %d are allowed", namespace, name, len(identity), possession.MaxIdentityLength)
	}
	if options.CreateWith != nil {
		options.CreateWith = options.CreateWith.DeepCopy()
	}
	return &Lock{
		leases:   possession.Client{REST: client, Namespace: namespace, Name: name},
		identity: identity,
		options:  options,
	}, nil
}

// Term returns the term under which the elector leads, and whether there is one: false before the acquisition, while the
// seal is pending, from the start of a release, and from the moment when the lock learned of a loss. The lock learns of
// it by the elector's next request; until then the API server refuses the writes.
func (l *Lock) Term() (Term, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own == nil || !l.own.handed || l.own.releasing {
		return Term{}, false
	}
	return l.own.term, true
}

// Token returns the token of Term.
func (l *Lock) Token() (token.Token, bool) {
	term, ok := l.Term()
	if !ok {
		return token.Token{}, false
	}
	return term.Token(), true
}

// Lease names the FencedLease.
func (l *Lock) Lease() types.NamespacedName {
	return types.NamespacedName{Namespace: l.leases.Namespace, Name: l.leases.Name}
}

// Guards returns the guards of the lease as the elector's last request showed it, which a holder renews often; none before
// the first one. They must not be changed.
func (l *Lock) Guards() []v1alpha1.Guard {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.latest == nil {
		return nil
	}
	return l.latest.Spec.Guards
}

// Identity returns the identity that the lock writes as holder.
func (l *Lock) Identity() string { return l.identity }

// Describe names the lease in the elector's log.
func (l *Lock) Describe() string { return l.leases.String() }
