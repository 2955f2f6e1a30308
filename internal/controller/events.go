// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reasons of events. Those of conditions are used besides.
const (
	// EventMarksUnreadable says that the manager may not list a guarded kind.
	EventMarksUnreadable = "MarksUnreadable"

	actionInstall    = "InstallGuards"
	actionRaiseFloor = "RaiseFloor"
	actionReadMarks  = "ReadMarks"
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
