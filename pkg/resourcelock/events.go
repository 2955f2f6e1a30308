// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

const (
	// reasonElection is the reason of the events with which electors say that they began or stopped.
	reasonElection = "LeaderElection"
	// reasonDuration is the reason of the event on an elector that believes longer in its lease than followers wait.
	reasonDuration = "LeaseDurationMismatch"

	// stoppedLeading is what client-go's elector records after its last renewal, and after the release if it makes one.
	stoppedLeading = "stopped leading"
)

// RecordEvent records what the elector says about itself. When the elector has stopped leading, its term is over for this
// lock, released or not: the next one is a new term.
func (l *Lock) RecordEvent(what string) {
	if what == stoppedLeading {
		l.mu.Lock()
		l.own, l.lost, l.stopping, l.decided = nil, nil, nil, nil
		l.mu.Unlock()
	}
	l.event(corev1.EventTypeNormal, reasonElection, fmt.Sprintf("%s %s", l.identity, what))
}

// warnOfDuration tells the lease's operator of an elector that holds on longer than followers wait.
func (l *Lock) warnOfDuration(lease *v1alpha1.FencedLease, record resourcelock.LeaderElectionRecord) {
	if record.LeaseDurationSeconds > int(lease.Spec.LeaseDurationSeconds) {
		l.event(corev1.EventTypeWarning, reasonDuration, fmt.Sprintf(
			"%s uses a lease duration of %d seconds and followers wait %d: set the same in the elector and in spec.leaseDurationSeconds",
			l.identity, record.LeaseDurationSeconds, lease.Spec.LeaseDurationSeconds))
	}
}

func (l *Lock) event(eventType, reason, message string) {
	if l.options.EventRecorder == nil {
		return
	}
	regarding := &v1alpha1.FencedLease{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: l.leases.Namespace, Name: l.leases.Name},
	}
	l.mu.Lock()
	if l.latest != nil {
		regarding.UID, regarding.ResourceVersion = l.latest.UID, l.latest.ResourceVersion
	}
	l.mu.Unlock()
	l.options.EventRecorder.Eventf(regarding, eventType, reason, "%s", message)
}

// EventsRecorder adapts a recorder of the events.k8s.io API, such as controller-runtime's manager hands out, to
// Options.EventRecorder.
func EventsRecorder(recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}) resourcelock.EventRecorder {
	return eventsRecorder(recorder.Eventf)
}

type eventsRecorder func(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)

func (r eventsRecorder) Eventf(obj runtime.Object, eventType, reason, message string, args ...any) {
	r(obj, nil, eventType, reason, "Elect", message, args...)
}
