// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// Authority serves certificates of one replica. It is a runnable of a controller-runtime manager that needs no election.
type Authority struct {
	opts    Options
	metrics *Metrics

	// served is the certificate in use, nil before the first.
	served atomic.Pointer[servingLeaf]
	// known is the newest state that this replica has seen, nil before the first. Written with mu held.
	known atomic.Pointer[state]
	// problem is what the last check failed with, nil if it did not.
	problem atomic.Pointer[error]
	// changed wakes the Rotator of this replica, if there is one, and wake the loop of Start, when known has changed.
	changed, wake chan struct{}

	// mu lets one goroutine at a time read and write the Secret, and guards what follows.
	mu sync.Mutex
	// readAt is when the last successful read of the Secret began.
	readAt time.Time
	// seen is the resourceVersion that it had, empty if it did not exist.
	seen string
	// inAccord says that the Secret held the remembered state then.
	inAccord bool
	// mendedAt is when this replica last tried to restore the Secret.
	mendedAt time.Time
	// pending is the CA that signs now and of which this replica serves no leaf yet.
	pending pendingSigner
	// complaint is the last message of an event that says that restoring failed, empty since it last succeeded.
	complaint string
}

// NewAuthority returns an Authority for the options, or an error that says what is wrong with them.
func NewAuthority(opts Options) (*Authority, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	return &Authority{opts: opts, metrics: NewMetrics(), changed: make(chan struct{}, 1), wake: make(chan struct{}, 1)}, nil
}

// NeedLeaderElection returns false: every replica serves.
func (*Authority) NeedLeaderElection() bool { return false }

// GetCertificate returns the serving certificate. It is meant for tls.Config.GetCertificate and never waits.
func (a *Authority) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return certificateOf(a.served.Load())
}

// Ready returns an error while there is no valid certificate to serve. It is a check for readyz.
func (a *Authority) Ready() error {
	return readiness(a.served.Load(), a.opts.Clock.Now(), a.problem.Load())
}

func certificateOf(leaf *servingLeaf) (*tls.Certificate, error) {
	if leaf == nil {
		return nil, errors.New("there is no serving certificate yet")
	}
	return leaf.tls, nil
}

// readiness returns an error, with what the last check failed with, if the certificate is none to serve.
func readiness(leaf *servingLeaf, now time.Time, problem *error) error {
	var state string
	switch {
	case leaf == nil:
		state = "there is no serving certificate yet"
	case !now.Before(leaf.tls.Leaf.NotAfter):
		state = "the serving certificate has expired"
	default:
		return nil
	}
	if problem != nil && *problem != nil {
		return fmt.Errorf("%s: %w", state, *problem)
	}
	return errors.New(state)
}

// Start follows the Secret and renews the serving certificate until ctx ends.
func (a *Authority) Start(ctx context.Context) error {
	ticker := a.opts.Clock.NewTicker(a.opts.CheckInterval)
	defer ticker.Stop()
	follower := &follower{secrets: a.opts.Secrets, name: a.opts.Name, clock: a.opts.Clock, pause: a.opts.CheckInterval}
	defer follower.close()
	report := &reporter{message: "Checking the serving certificate failed"}

	force := false
	for {
		// The watch is opened before the Secret is read: a change after the read is then always seen. Events only say that
		// there is something to read.
		opened, watchErr := follower.open(ctx)
		err := errors.Join(watchErr, a.check(ctx, force || opened))
		a.problem.Store(&err)
		report.log(ctx, err)
		if force = a.wait(ctx, follower, ticker.C()); ctx.Err() != nil {
			return nil
		}
	}
}

// wait returns when something is to be checked or ctx has ended, and reports whether the Secret must be read for it.
func (a *Authority) wait(ctx context.Context, follower *follower, tick <-chan time.Time) (read bool) {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
			return false
		case <-a.wake:
			return false
		case event, open := <-follower.events():
			resourceVersion, usable := follower.take(event, open)
			switch {
			case usable && resourceVersion != a.lastSeen():
				return true
			case !usable && follower.mayOpen():
				// Watches end from time to time. One that does so at once is opened again with a later tick.
				return false
			}
		}
	}
}

// lastSeen returns the resourceVersion that the Secret had when this replica last read or wrote it.
func (a *Authority) lastSeen() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen
}

// check reads the Secret if forced or due, and renews the serving certificate if due.
func (a *Authority) check(ctx context.Context, force bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var readErr error
	if now := a.opts.Clock.Now(); force || !a.inAccord || now.Sub(a.readAt) >= a.opts.RereadInterval {
		_, _, readErr = a.refresh(ctx)
	}
	return errors.Join(readErr, a.renew(ctx))
}

// renew signs a new leaf if the one in use was signed by another CA than the one that signs now, or is old. It is called
// with mu held.
func (a *Authority) renew(ctx context.Context) error {
	s, leaf, now := a.known.Load(), a.served.Load(), a.opts.Clock.Now()
	if s == nil {
		return errors.New("wait for the elected replica to create a CA")
	}
	switched := leaf == nil || !leaf.signer.Equal(s.signing.cert)
	if !switched && now.Before(leaf.renewAt) {
		return nil
	}
	// A CA that retired counts on it that a replica which cannot know about it signs nothing more.
	if now.Sub(a.readAt) > a.opts.MaxReadAge() {
		return fmt.Errorf("sign a serving certificate: Secret %s could not be read for %v", a.opts.Name, a.opts.MaxReadAge())
	}
	if s.signing.expired(now) {
		return fmt.Errorf("sign a serving certificate: the CA has ended at %v", s.signing.cert.NotAfter)
	}
	if switched {
		if ready, err := a.mayServe(ctx, s.signing.cert, leaf); err != nil || !ready {
			return err
		}
	}
	fresh, err := s.signing.signLeaf(a.opts, now)
	if err != nil {
		return err
	}
	a.served.Store(fresh)
	klog.FromContext(ctx).V(1).Info("Serving a new certificate", "ca", fresh.signer.Subject.CommonName, "notAfter", fresh.tls.Leaf.NotAfter)
	return nil
}

// pendingSigner is a CA that is to sign, and what this replica has seen of its being trusted.
type pendingSigner struct {
	cert *x509.Certificate
	// uncovered: the webhook configurations have been seen not to trust it.
	uncovered bool
	// since is from when on they have been seen to trust it.
	since time.Time
}

// mayServe reports whether a leaf of the CA can take the place of the one in use, nil if there is none. The elected replica
// has checked that before it let the CA sign. Checking it again makes up for an elected one that knew nothing, since the
// Secret had been damaged when it started.
//
// A replica that has a leaf which is good for a while has time: it waits for the settle margin. One that has none serves at
// once if the configurations trusted the CA when it started. If they did not, it gives those who remember a better state
// the time to restore it. It is called with mu held.
func (a *Authority) mayServe(ctx context.Context, signer *x509.Certificate, leaf *servingLeaf) (bool, error) {
	if a.pending.cert != signer {
		a.pending = pendingSigner{cert: signer}
	}
	installed, err := a.installed(ctx)
	if err != nil {
		return false, err
	}
	now := a.opts.Clock.Now()
	served := leaf != nil && leaf.tls.Leaf.NotAfter.Sub(now) > a.opts.ClockSkew
	if !installed.covers(signer) {
		a.pending.uncovered, a.pending.since = true, time.Time{}
		return false, fmt.Errorf("wait for the webhook configurations to trust %s", signer.Subject.CommonName)
	}
	if a.pending.since.IsZero() {
		a.pending.since = now
	}
	var margin time.Duration
	switch {
	case served:
		margin = a.opts.SettleMargin
	case a.pending.uncovered:
		margin = a.opts.restoreTime()
	}
	if now.Sub(a.pending.since) >= margin {
		return true, nil
	}
	if served {
		return false, nil
	}
	return false, fmt.Errorf("wait until %s has been trusted for %v", signer.Subject.CommonName, margin)
}

// installed reads what the webhook configurations trust now, from the API server.
func (a *Authority) installed(ctx context.Context) (trust, error) {
	bundles, err := a.opts.InstalledBundles(ctx)
	if err != nil {
		return nil, fmt.Errorf("read bundles of webhook configurations: %w", err)
	}
	return parseTrust(bundles), nil
}

// reporter logs what goes wrong in a loop, each failure once and not with every round.
type reporter struct {
	message string
	last    string
}

func (r *reporter) log(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		r.last = ""
		return
	}
	if text := err.Error(); text != r.last {
		r.last = text
		klog.FromContext(ctx).Error(err, r.message)
	}
}
