// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// fieldOwner is the field manager of the Secret.
const fieldOwner = "fencedlease-certificates"

// errRaced says that another replica wrote the Secret first. What it wrote is to be read.
var errRaced = errors.New("another replica was first")

// refresh reads the Secret from etcd by a linearizable read and brings memory and Secret into accord: it follows a state
// that continues the remembered one and restores the remembered one otherwise. It returns the Secret, nil if there is none,
// and whether that holds the remembered state now. It is called with mu held.
func (a *Authority) refresh(ctx context.Context) (secret *corev1.Secret, inAccord bool, err error) {
	defer func() { a.inAccord = inAccord }()
	now := a.opts.Clock.Now()
	secret, err = a.opts.Secrets.Get(ctx, a.opts.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret = nil
	} else if err != nil {
		return nil, false, fmt.Errorf("read Secret %s: %w", a.opts.Name, err)
	}

	known := a.known.Load()
	var found *state
	var damage error
	if secret != nil {
		found, damage = decodeState(secret.Data)
	}
	relation := compare(known, found)
	var installed trust
	if relation == foundContested || relation == foundLost && secret != nil {
		if installed, err = a.installed(ctx); err != nil {
			return nil, false, err
		}
	}
	// What the API servers trust decides. A replica that was away for so long that its own CA is no longer trusted gives
	// way to the state whose CA is.
	if relation == foundContested && installed.covers(found.signing.cert) && !installed.covers(known.signing.cert) {
		relation = foundNewer
	}

	a.readAt, a.seen = now, ""
	if secret != nil {
		a.seen = secret.ResourceVersion
	}
	switch relation {
	case foundNewer:
		a.follow(found)
		return secret, true, nil
	case foundSame:
		a.complaint = ""
		return secret, true, nil
	case foundLost, foundContested:
		return a.restore(ctx, secret, found, damage, installed)
	default: // foundNothing: the elected replica will create the first CA.
		return secret, false, nil
	}
}

// follow remembers the state. It is called with mu held.
func (a *Authority) follow(s *state) {
	a.known.Store(s)
	notify(a.changed)
	notify(a.wake)
}

// restore writes the remembered state back. Secret is what is on the server, nil if nothing is. It does so at most once
// in a check interval, so that two parties who write the Secret do not do so all the time. Results are those of refresh.
func (a *Authority) restore(ctx context.Context, secret *corev1.Secret, found *state, damage error, installed trust) (
	written *corev1.Secret, inAccord bool, err error,
) {
	now := a.opts.Clock.Now()
	if !a.mendedAt.IsZero() && now.Sub(a.mendedAt) < a.opts.CheckInterval {
		return secret, false, nil
	}
	a.mendedAt = now

	known := a.known.Load()
	var cause, what string
	switch {
	case secret == nil:
		// The same revision: a replica that has not noticed sees no difference.
		cause, what = causeDeleted, "was deleted"
		written, err = a.create(ctx, known)
	case found == nil:
		cause, what = causeDamaged, "was damaged ("+damage.Error()+")"
		written, err = a.update(ctx, secret, a.opts.restored(known, nil, installed, now))
	default:
		cause, what = causeReplaced, fmt.Sprintf("was replaced by a state of revision %d that does not continue revision %d", found.revision, known.revision)
		written, err = a.update(ctx, secret, a.opts.restored(known, found, installed, now))
	}
	if errors.Is(err, errRaced) {
		// The watch, or the next check, shows what was written.
		return secret, false, nil
	}
	if err != nil {
		a.complain(what, err)
		return nil, false, err
	}
	a.complaint = ""
	a.metrics.restores.WithLabelValues(cause).Inc()
	a.record(ctx, warning(ReasonStateRestored, "Secret %s %s; written anew from memory with revision %d, serving went on",
		a.opts.Name, what, a.known.Load().revision))
	return written, true, nil
}

// complain records that restoring failed, once for each reason.
func (a *Authority) complain(what string, err error) {
	e := warning(ReasonStateNotRestored, "Secret %s %s and cannot be written anew, serving goes on from memory: %v", a.opts.Name, what, err)
	if e.message != a.complaint {
		a.complaint = e.message
		a.opts.Recorder.Event(e.eventType, e.reason, e.message)
	}
}

// create creates the Secret with the state and remembers it. It is called with mu held.
func (a *Authority) create(ctx context.Context, s *state) (*corev1.Secret, error) {
	data, err := s.encode()
	if err != nil {
		return nil, err
	}
	secret, err := a.opts.Secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: a.opts.Name, Labels: a.opts.Labels},
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}, metav1.CreateOptions{FieldManager: fieldOwner})
	return a.written(secret, s, "create", err)
}

// update writes the state into the Secret that was read, on condition that it has not changed since, and remembers it. It
// is called with mu held.
func (a *Authority) update(ctx context.Context, read *corev1.Secret, s *state) (*corev1.Secret, error) {
	data, err := s.encode()
	if err != nil {
		return nil, err
	}
	changed := read.DeepCopy()
	changed.Data = data
	secret, err := a.opts.Secrets.Update(ctx, changed, metav1.UpdateOptions{FieldManager: fieldOwner})
	return a.written(secret, s, "update", err)
}

// written remembers the state if writing it was successful. A write that failed may have been committed all the same; the
// next read tells.
func (a *Authority) written(secret *corev1.Secret, s *state, verb string, err error) (*corev1.Secret, error) {
	switch {
	case apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%s Secret %s: %w", verb, a.opts.Name, errRaced)
	case err != nil:
		return nil, fmt.Errorf("%s Secret %s: %w", verb, a.opts.Name, err)
	}
	a.seen = secret.ResourceVersion
	a.follow(s)
	return secret, nil
}

// record records an event and logs it.
func (a *Authority) record(ctx context.Context, e event) {
	klog.FromContext(ctx).Info("Certificates changed", "reason", e.reason, "detail", e.message)
	a.opts.Recorder.Event(e.eventType, e.reason, e.message)
}

// notify wakes the reader of a channel with room for one, if it is not about to wake anyway.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
