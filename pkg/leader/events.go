// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// Reasons of the events on a FencedLease.
const (
	reasonElection  = "LeaderElection"
	reasonLost      = "LeadershipLost"
	reasonDeleted   = "LeaseDeleted"
	reasonMissing   = "LeaseMissing"
	reasonNotReady  = "LeaseNotReady"
	reasonForbidden = "NoPermission"
	reasonTooShort  = "LeaseDurationTooShort"
)

func (r *run) ref() klog.ObjectRef { return klog.KRef(r.options.Namespace, r.options.Name) }

// event records on the lease, which may be nil if it is missing or not known.
func (r *run) event(lease *v1alpha1.FencedLease, eventType, reason, message string, args ...any) {
	if r.options.EventRecorder == nil {
		return
	}
	regarding := &v1alpha1.FencedLease{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: r.options.Name},
	}
	if lease != nil {
		regarding.UID, regarding.ResourceVersion = lease.UID, lease.ResourceVersion
	}
	r.options.EventRecorder.Eventf(regarding, eventType, reason, message, args...)
}

// report tells why the elector waits, if that has changed: that the watch does not work, or the reason if there is one.
func (r *run) report(ctx context.Context, seen observation, reason error) {
	if seen.problem != nil {
		reason = seen.problem
	}
	if reason == nil {
		return
	}
	// Errors of the transport differ from one time to the next, so an error is known by what it is.
	key, eventReason := reason.Error(), ""
	var held *HeldError
	switch {
	case errors.As(reason, &held):
		key = "held by " + held.term
	case errors.Is(reason, ErrMissing):
		key, eventReason = ErrMissing.Error(), reasonMissing
	case errors.Is(reason, ErrNotReady):
		key, eventReason = ErrNotReady.Error(), reasonNotReady
	case errors.Is(reason, ErrForbidden):
		key, eventReason = ErrForbidden.Error(), reasonForbidden
	case errors.Is(reason, ErrUnavailable):
		key = ErrUnavailable.Error()
	case errors.Is(reason, ErrLeaseTooShort):
		eventReason = reasonTooShort
	}
	if key == r.told {
		return
	}
	r.told = key
	klog.FromContext(ctx).Info("Waiting to lead", "lease", r.ref(), "identity", r.options.Identity, "reason", reason.Error())
	if eventReason != "" {
		r.event(seen.lease, corev1.EventTypeWarning, eventReason, "%s waits: %v", r.options.Identity, reason)
	}
	if r.options.OnWaiting != nil {
		r.options.OnWaiting(reason)
	}
}

// won takes note of an acquisition that was sent at the time, and returns its term and the context of its work.
func (r *run) won(ctx context.Context, info Info, sent time.Time, by step) (*Term, context.Context) {
	r.told = ""
	r.options.Metrics.Acquired(max(0, r.options.Clock.Since(by.free)))
	return newTerm(ctx, info, r.options.Clock, r.view, sent, by.timing)
}

func (r *run) eventBegan(term *Term) {
	seen, _ := r.view.look()
	r.event(seen.lease, corev1.EventTypeNormal, reasonElection, "%s became leader under generation %d", r.options.Identity, term.info.Generation)
}

// lost tells that a term was lost. Its work's context has ended before.
func (r *run) lost(ctx context.Context, term *Term) {
	var lost *LostError
	if !errors.As(term.Err(), &lost) {
		return
	}
	r.options.Metrics.Leading(false)
	r.options.Metrics.Lost(reasonOf(lost))
	klog.FromContext(ctx).Info("Lost the lead, waiting for the work to return", "lease", r.ref(), "identity", r.options.Identity, "reason", lost.Error())
	seen, _ := r.view.look()
	reason := reasonLost
	if lost.Deleted {
		reason = reasonDeleted
	}
	r.event(seen.lease, corev1.EventTypeWarning, reason, "%v", lost)
}

// eventStopped tells that the elector does not lead any more, nor does its work.
func (r *run) eventStopped(term *Term) {
	r.options.Metrics.Leading(false)
	seen, _ := r.view.look()
	r.event(seen.lease, corev1.EventTypeNormal, reasonElection, "%s stopped leading under generation %d", r.options.Identity, term.info.Generation)
}
