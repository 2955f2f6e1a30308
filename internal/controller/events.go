// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reasons of events. Those of conditions are used besides.
const (
	// EventMarksUnreadable says that the manager may not list a guarded kind.
	EventMarksUnreadable = "MarksUnreadable"
	// EventOlderMarks says that objects with older marks were found in a term that had been sealed before, of which it is not
	// known whether they were created late.
	EventOlderMarks = "OlderMarks"

	actionInstall    = "InstallGuards"
	actionRaiseFloor = "RaiseFloor"
	actionReadMarks  = "ReadMarks"
	actionSeal       = "Seal"
)

// maxNote is the largest length of an event's note.
const maxNote = 1024

// eventWriter records events about FencedLeases.
type eventWriter struct {
	recorder events.EventRecorder
}

// transitions records the conditions that an operator should hear of when they change.
func (w eventWriter) transitions(lease *v1alpha1.FencedLease, conditions []metav1.Condition) {
	for _, c := range conditions {
		before := meta.FindStatusCondition(lease.Status.Conditions, c.Type)
		if before != nil && before.Status == c.Status && before.Reason == c.Reason {
			continue
		}
		switch {
		case c.Type == v1alpha1.ConditionReady:
			w.ready(lease, c)
		case c.Type == v1alpha1.ConditionSealed:
			w.sealed(lease, c)
		case c.Status != metav1.ConditionTrue:
		case c.Type == v1alpha1.ConditionGenerationBehind:
			w.generationBehind(lease, c)
		case c.Type == v1alpha1.ConditionImplausibleMark:
			w.implausibleMark(lease, c)
		}
	}
}

// ready says that guards came in force, or why not. Waiting for API servers is no news.
func (w eventWriter) ready(lease *v1alpha1.FencedLease, c metav1.Condition) {
	switch c.Reason {
	case v1alpha1.ReasonInForce:
		w.record(lease, corev1.EventTypeNormal, c.Reason, actionInstall, c.Message)
	case v1alpha1.ReasonGuardSkipped, v1alpha1.ReasonKindMissing, v1alpha1.ReasonProbeFailed:
		w.record(lease, corev1.EventTypeWarning, c.Reason, actionInstall, c.Message)
	}
}

// sealed says that a term is sealed, or what keeps it from being. Progress is no news.
func (w eventWriter) sealed(lease *v1alpha1.FencedLease, c metav1.Condition) {
	switch c.Reason {
	case v1alpha1.ReasonSealed:
		w.record(lease, corev1.EventTypeNormal, c.Reason, actionSeal, c.Message)
	case v1alpha1.ReasonSealForbidden, v1alpha1.ReasonSealFailing:
		w.record(lease, corev1.EventTypeWarning, "Seal"+c.Reason, actionSeal, c.Message)
	}
}

// createdLate says of each late create what has become of it.
func (w eventWriter) createdLate(order seal.Order, object string, deleted bool, err error) {
	note := fmt.Sprintf("%s was created under an ended term and appeared after the seal of generation %d had begun", object, order.Token.Generation)
	switch {
	case deleted:
		note += ": it was deleted"
	case err != nil:
		note += ": it could not be deleted: " + err.Error()
	default:
		note += ": it carries the current term's mark now, see whether it should be there"
	}
	w.record(leaseOf(order), corev1.EventTypeWarning, v1alpha1.ConditionLateCreate, actionSeal, note)
}

// olderMarks says how many objects a new look has found in a term that was sealed.
func (w eventWriter) olderMarks(order seal.Order, count int64) {
	w.record(leaseOf(order), corev1.EventTypeWarning, EventOlderMarks, actionSeal, fmt.Sprintf(
		"%d guarded objects had marks older than generation %d after it was sealed, and carry its mark now: they came to match a guard, or were created late while nobody watched",
		count, order.Token.Generation))
}

// leaseOf returns as much of an order's lease as an event needs.
func leaseOf(order seal.Order) *v1alpha1.FencedLease {
	return &v1alpha1.FencedLease{ObjectMeta: metav1.ObjectMeta{Namespace: order.Lease.Namespace, Name: order.Lease.Name, UID: order.UID}}
}

func (w eventWriter) generationBehind(lease *v1alpha1.FencedLease, c metav1.Condition) {
	w.record(lease, corev1.EventTypeWarning, v1alpha1.ConditionGenerationBehind, actionRaiseFloor, c.Message)
}

func (w eventWriter) implausibleMark(lease *v1alpha1.FencedLease, c metav1.Condition) {
	w.record(lease, corev1.EventTypeWarning, v1alpha1.ConditionImplausibleMark, actionReadMarks, c.Message)
}

// marksUnreadable says what the owner of the cluster has to allow.
func (w eventWriter) marksUnreadable(lease *v1alpha1.FencedLease, denied []schema.GroupResource) {
	if len(denied) == 0 {
		return
	}
	var names []string
	for _, gr := range denied {
		names = append(names, gr.String())
	}
	slices.Sort(names)
	w.record(lease, corev1.EventTypeWarning, EventMarksUnreadable, actionReadMarks,
		"the manager may not list "+strings.Join(slices.Compact(names), ", ")+", so marks on objects that are already there do not raise generationFloor: "+
			"create a ClusterRole with the label "+GuardedKindsLabel+": \"true\" that allows get and list")
}

func (w eventWriter) record(lease *v1alpha1.FencedLease, eventType, reason, action, note string) {
	if len(note) > maxNote {
		note = note[:maxNote]
	}
	w.recorder.Eventf(lease, nil, eventType, reason, action, "%s", note)
}

func conditionIsTrue(lease *v1alpha1.FencedLease, conditionType string) bool {
	return meta.IsStatusConditionTrue(lease.Status.Conditions, conditionType)
}
