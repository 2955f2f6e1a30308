// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// maxSteps bounds the writes of one round.
const maxSteps = 8

// Rotator rotates the CA and hands out the bundle. It is a runnable of a controller-runtime manager that needs election,
// beside the Authority of the same replica, and is started once.
type Rotator struct {
	authority *Authority

	// adopted says that what the webhook configurations trusted when this replica was elected is part of the state.
	// confirmed is since when they have been seen to carry the whole bundle confirmedBundle, zero if they do not. Used by
	// the loop only.
	adopted         bool
	confirmed       time.Time
	confirmedBundle []byte
	// strangeSince is since when the Secret has been seen not to hold what the webhook configurations trust, zero if that
	// was not seen.
	strangeSince time.Time

	mu          sync.Mutex
	bundle      []byte
	subscribers []chan struct{}
}

// NewRotator returns the Rotator of the replica that the Authority belongs to.
func NewRotator(authority *Authority) *Rotator { return &Rotator{authority: authority} }

// NeedLeaderElection returns true: one replica rotates.
func (*Rotator) NeedLeaderElection() bool { return true }

// Bundle returns the CA certificates, as PEM, that all webhook configurations must trust now. It is nil until this replica
// has been elected and has read the state from the server. While it is nil, bundles must be left as they are: a replica
// that was elected a moment ago does not know yet what the one before it handed out.
func (r *Rotator) Bundle() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.bundle)
}

// Subscribe returns a channel that gets a value after each change of the bundle, also after the first, and with each check
// that finds a webhook configuration without it. Changes in quick succession give one value. The channel lasts as long as the Rotator.
func (r *Rotator) Subscribe() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := make(chan struct{}, 1)
	if r.bundle != nil {
		ch <- struct{}{}
	}
	r.subscribers = append(r.subscribers, ch)
	return ch
}

// Start rotates until ctx ends.
func (r *Rotator) Start(ctx context.Context) error {
	ticker := r.authority.opts.Clock.NewTicker(r.authority.opts.CheckInterval)
	defer ticker.Stop()
	report := &reporter{message: "Rotating the CA failed"}
	for {
		report.log(ctx, r.sync(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-r.authority.changed:
		}
	}
}

// sync takes all steps that are due.
func (r *Rotator) sync(ctx context.Context) error {
	r.authority.mu.Lock()
	defer r.authority.mu.Unlock()
	for range maxSteps {
		more, err := r.step(ctx)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	return r.remind(ctx)
}

// remind tells subscribers of the bundle once more if a webhook configuration does not carry all of it: somebody has changed
// it, or a restore of the store has taken it back, of which no watch tells. It is called with the lock of the authority held.
func (r *Rotator) remind(ctx context.Context) error {
	s := r.authority.known.Load()
	if s == nil || !r.adopted {
		return nil
	}
	installed, err := r.authority.installed(ctx)
	if err != nil {
		return err
	}
	if !installed.carries(s.trusted()) {
		r.tell()
	}
	return nil
}

// step takes the step that is due and hands out the bundle of the state that is stored then. It reports whether another
// step may be due. It is called with the lock of the authority held.
func (r *Rotator) step(ctx context.Context) (more bool, err error) {
	a := r.authority
	secret, inAccord, err := a.refresh(ctx)
	if err != nil {
		return false, err
	}
	s := a.known.Load()
	if s == nil {
		return r.bootstrap(ctx, secret)
	}
	if inAccord {
		next, e, err := r.next(ctx, s)
		if err != nil {
			return false, err
		}
		if e != (event{}) {
			if _, err := a.update(ctx, secret, next); err != nil {
				return raced(err)
			}
			// Nothing else is stored before what was trusted at the election is.
			r.adopted, more = true, true
			a.record(ctx, e)
		}
	}
	// Until adoption is stored, the bundle could lack a CA of which leaves are being served.
	if r.adopted {
		r.publish(a.known.Load().bundle())
	}
	return more, nil
}

// next returns the state that follows s and the event that tells of it. The event is zero if nothing is due.
func (r *Rotator) next(ctx context.Context, s *state) (*state, event, error) {
	a := r.authority
	if r.adopted && s.next == nil {
		r.confirmed = time.Time{}
		return a.opts.advance(s, a.opts.Clock.Now(), false)
	}
	installed, err := a.installed(ctx)
	// The time is taken after the read: what it has seen was there by then.
	now := a.opts.Clock.Now()
	if err != nil {
		r.confirmed = time.Time{}
		return nil, event{}, err
	}
	if !r.adopted {
		if !installed.covers(s.signing.cert) && r.yields(now) {
			return s, event{}, nil
		}
		strangers := slices.DeleteFunc(installed.authorities(now), s.trusts)
		if len(strangers) > 0 {
			adopted := s.successor().retain(strangers, now.Add(a.opts.retention()))
			return adopted, warning(ReasonCAAdopted, "Webhook configurations trust %d CA(s) that Secret %s does not name; they stay trusted for %v",
				len(strangers), a.opts.Name, a.opts.retention()), nil
		}
		r.adopted = true
	}
	return a.opts.advance(s, now, r.settled(s, installed, now))
}

// yields reports whether this replica, which was elected without a memory of its own and finds a Secret that is not what
// the webhook configurations trust, still has to leave it to a replica that remembers to restore the Secret.
func (r *Rotator) yields(now time.Time) bool {
	if r.strangeSince.IsZero() {
		r.strangeSince = now
	}
	return now.Sub(r.strangeSince) < r.authority.opts.restoreTime()
}

// settled reports whether the webhook configurations have carried the bundle of s, which has a next CA, for the settle
// margin as far as this replica has seen.
func (r *Rotator) settled(s *state, installed trust, now time.Time) bool {
	bundle := s.bundle()
	switch {
	case s.next == nil || !installed.carries(s.trusted()):
		r.confirmed = time.Time{}
	case r.confirmed.IsZero() || !bytes.Equal(r.confirmedBundle, bundle):
		r.confirmed, r.confirmedBundle = now, bundle
	default:
		return now.Sub(r.confirmed) >= r.authority.opts.SettleMargin
	}
	return false
}

// bootstrap creates the first CA. Secret is what is on the server: nil, or something unreadable that no replica has restored
// and that is written over. CAs that webhook configurations trust stay trusted: other replicas may serve leaves of theirs.
func (r *Rotator) bootstrap(ctx context.Context, secret *corev1.Secret) (more bool, err error) {
	a := r.authority
	installed, err := a.installed(ctx)
	if err != nil {
		return false, err
	}
	now := a.opts.Clock.Now()
	trusted := installed.authorities(now)
	if len(trusted) > 0 && r.yields(now) {
		return false, nil
	}
	signing, err := newCA(now, a.opts.CALife, a.opts.ClockSkew)
	if err != nil {
		return false, err
	}
	first := (&state{revision: 1, signing: signing}).retain(trusted, now.Add(a.opts.retention()))
	if secret == nil {
		_, err = a.create(ctx, first)
	} else {
		_, err = a.update(ctx, secret, first)
	}
	if err != nil {
		return raced(err)
	}
	r.adopted = true
	a.record(ctx, normal(ReasonCACreated, "First CA of serving certificates created: %s", signing.cert.Subject.CommonName))
	return true, nil
}

// raced turns the error of a write that another replica forestalled into a further step, which reads what was written.
func raced(err error) (more bool, other error) {
	if errors.Is(err, errRaced) {
		return true, nil
	}
	return false, err
}

// publish hands out the bundle, if it is another one than before.
func (r *Rotator) publish(bundle []byte) {
	r.mu.Lock()
	same := bytes.Equal(r.bundle, bundle)
	r.bundle = bundle
	r.mu.Unlock()
	if !same {
		r.tell()
	}
}

func (r *Rotator) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ch := range r.subscribers {
		notify(ch)
	}
}
