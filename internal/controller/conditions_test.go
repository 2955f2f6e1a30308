// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
)

var epoch = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func held(generation int64, holder string) v1alpha1.FencedLease {
	l := lease("ns", "a", own("reports"))
	l.Status = v1alpha1.FencedLeaseStatus{
		Generation: &generation, HolderIdentity: &holder, GenerationFloor: ptr.To[int64](100), SealedGeneration: ptr.To[int64](0),
		Term: ptr.To(""), Seal: v1alpha1.SealNotRequired,
	}
	return l
}

func inForce(problems ...Problem) report {
	return report{known: true, verdict: verdict{inForce: true, message: "seen"}, problems: problems}
}

func progress(state seal.State, late int) sealing {
	return sealing{status: seal.Status{State: state, Message: "something", Late: seal.Late{Count: late, Last: "reports x/y"}}}
}

func deleted(s sealing) sealing {
	s.status.Late.Deleted = true
	return s
}

func TestConditionsSayWhatIs(t *testing.T) {
	condition := func(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: status, Reason: reason}
	}
	with := func(l v1alpha1.FencedLease, c metav1.Condition) v1alpha1.FencedLease {
		l.Status.Conditions = append(l.Status.Conditions, c)
		return l
	}
	sealed := func(generation int64) v1alpha1.FencedLease {
		l := held(101, "me")
		l.Status.Seal, l.Status.SealedGeneration = v1alpha1.SealRequired, &generation
		return l
	}
	missing := Problem{Reason: ProblemMissing, Message: "widgets is not installed"}
	builtin := Problem{Guard: 1, Reason: ProblemBuiltin, Message: "roles is built in"}
	for name, test := range map[string]struct {
		lease v1alpha1.FencedLease
		facts facts
		want  metav1.Condition
	}{
		"never held": {held(0, ""), facts{}, condition("Held", "False", "NeverHeld")},
		"held":       {held(101, "me"), facts{}, condition("Held", "True", "Acquired")},
		"released":   {held(101, ""), facts{}, condition("Held", "False", "Released")},

		"no seal needed":          {held(101, "me"), facts{}, condition("Sealed", "True", "NotRequired")},
		"sealed":                  {sealed(101), facts{sealedGeneration: 101}, condition("Sealed", "True", "Sealed")},
		"sealed by this pass":     {sealed(99), facts{sealedGeneration: 101}, condition("Sealed", "True", "Sealed")},
		"sealed, with a failure":  {sealed(101), facts{sealedGeneration: 101, seal: progress(seal.Failing, 0)}, condition("Sealed", "True", "Sealed")},
		"seal pending":            {sealed(99), facts{sealedGeneration: 99, seal: progress(seal.Stamping, 0)}, condition("Sealed", "False", "Pending")},
		"seal waits for guards":   {sealed(99), facts{sealedGeneration: 99, seal: sealing{waiting: "they are not"}}, condition("Sealed", "False", "WaitingForGuards")},
		"seal lacks a right":      {sealed(99), facts{sealedGeneration: 99, seal: progress(seal.Forbidden, 0)}, condition("Sealed", "False", "Forbidden")},
		"seal fails":              {sealed(99), facts{sealedGeneration: 99, seal: progress(seal.Failing, 0)}, condition("Sealed", "False", "Failing")},
		"no late create":          {sealed(101), facts{sealedGeneration: 101, seal: progress(seal.Done, 0)}, condition("LateCreate", "False", "None")},
		"a late create":           {sealed(101), facts{sealedGeneration: 101, seal: progress(seal.Done, 2)}, condition("LateCreate", "True", "Reported")},
		"a late create, deleted":  {sealed(101), facts{sealedGeneration: 101, seal: deleted(progress(seal.Done, 1))}, condition("LateCreate", "True", "Deleted")},
		"it stays":                {with(sealed(101), condition("LateCreate", "True", "Deleted")), facts{sealedGeneration: 101}, condition("LateCreate", "True", "Deleted")},
		"until a later seal":      {with(sealed(99), condition("LateCreate", "True", "Deleted")), facts{sealedGeneration: 101}, condition("LateCreate", "False", "None")},
		"not during a later seal": {with(sealed(99), condition("LateCreate", "True", "Deleted")), facts{sealedGeneration: 99}, condition("LateCreate", "True", "Deleted")},
		"or a term without one":   {with(held(101, "me"), condition("LateCreate", "True", "Deleted")), facts{}, condition("LateCreate", "False", "None")},

		"in force":                  {held(0, ""), facts{report: inForce()}, condition("Ready", "True", "InForce")},
		"without guards":            {lease("ns", "a"), facts{}, condition("Ready", "True", "NoGuards")},
		"a kind is missing":         {held(0, ""), facts{report: inForce(missing)}, condition("Ready", "False", "KindMissing")},
		"a guard is skipped":        {held(0, ""), facts{report: inForce(missing, builtin)}, condition("Ready", "False", "GuardSkipped")},
		"not yet in force":          {held(0, ""), facts{report: report{known: true, verdict: verdict{reason: "Installing"}}}, condition("Ready", "False", "Installing")},
		"a new lease and replica":   {held(0, ""), facts{}, condition("Ready", "False", "Installing")},
		"a new replica keeps Ready": {with(held(0, ""), metav1.Condition{Type: "Ready", Status: "True", Reason: "InForce", ObservedGeneration: 1}), facts{}, condition("Ready", "True", "InForce")},
		"but not for another spec":  {with(held(0, ""), metav1.Condition{Type: "Ready", Status: "True", Reason: "InForce", ObservedGeneration: 0}), facts{}, condition("Ready", "False", "Installing")},

		"never held, and so not behind":   {held(0, ""), facts{floor: 100}, condition("GenerationBehind", "False", "Current")},
		"at its floor":                    {held(101, "me"), facts{floor: 101}, condition("GenerationBehind", "False", "Current")},
		"behind":                          {held(101, "me"), facts{floor: 102}, condition("GenerationBehind", "True", "HigherGenerationSeen")},
		"behind as the store went back":   {held(101, "me"), facts{floor: 102, storeWentBack: true}, condition("GenerationBehind", "True", "StoreWentBack")},
		"that reason stays":               {with(held(101, "me"), condition("GenerationBehind", "True", "StoreWentBack")), facts{floor: 102}, condition("GenerationBehind", "True", "StoreWentBack")},
		"no implausible mark":             {held(0, ""), facts{}, condition("ImplausibleMark", "False", "Plausible")},
		"an implausible mark":             {held(0, ""), facts{implausible: "reports x/y"}, condition("ImplausibleMark", "True", "ImplausibleMarkSeen")},
		"it stays until somebody looks":   {with(held(0, ""), condition("ImplausibleMark", "True", "ImplausibleMarkSeen")), facts{}, condition("ImplausibleMark", "True", "ImplausibleMarkSeen")},
		"and goes when nothing was found": {with(held(0, ""), condition("ImplausibleMark", "True", "ImplausibleMarkSeen")), facts{scanned: true}, condition("ImplausibleMark", "False", "Plausible")},
	} {
		t.Run(name, func(t *testing.T) {
			conditions := conditionsOf(&test.lease, test.facts, epoch)
			got := meta.FindStatusCondition(conditions, test.want.Type)
			if got == nil {
				t.Fatalf("no condition %s", test.want.Type)
			}
			ignored := cmpopts.IgnoreFields(metav1.Condition{}, "Message", "LastTransitionTime", "ObservedGeneration")
			if diff := cmp.Diff(test.want, *got, ignored); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
			if len(conditions) != 6 {
				t.Errorf("%d conditions, want all 6", len(conditions))
			}
			if got.ObservedGeneration != test.lease.Generation || got.LastTransitionTime.IsZero() && len(test.lease.Status.Conditions) == 0 {
				t.Errorf("condition is not complete: %+v", *got)
			}
			again := test.lease
			again.Status.Conditions = conditions
			again.Status.SealedGeneration = &test.facts.sealedGeneration
			if diff := cmp.Diff(conditions, conditionsOf(&again, test.facts, epoch.Add(time.Hour))); diff != "" {
				t.Errorf("a second pass changes conditions (-first +second):\n%s", diff)
			}
		})
	}
}

func TestOnlyRenewalsWakeNobody(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.FencedLease)
		want   bool
	}{
		"a renewal": {func(l *v1alpha1.FencedLease) {
			l.Status.RenewTime = ptr.To(metav1.NewMicroTime(epoch))
			l.ResourceVersion = "2"
		}, false},
		"a credential":        {func(l *v1alpha1.FencedLease) { l.Status.Credentials = []v1alpha1.Credential{{ID: "x"}} }, false},
		"a label":             {func(l *v1alpha1.FencedLease) { l.Labels = map[string]string{"a": "b"} }, false},
		"an acquisition":      {func(l *v1alpha1.FencedLease) { l.Status.Generation = ptr.To[int64](102) }, true},
		"a release":           {func(l *v1alpha1.FencedLease) { l.Status.HolderIdentity = ptr.To("") }, true},
		"a raised floor":      {func(l *v1alpha1.FencedLease) { l.Status.GenerationFloor = ptr.To[int64](200) }, true},
		"a changed condition": {func(l *v1alpha1.FencedLease) { l.Status.Conditions = []metav1.Condition{{Type: "Ready"}} }, true},
		"a new spec":          {func(l *v1alpha1.FencedLease) { l.Generation++ }, true},
		"a deletion":          {func(l *v1alpha1.FencedLease) { l.DeletionTimestamp = ptr.To(metav1.NewTime(epoch)) }, true},
		"another lease":       {func(l *v1alpha1.FencedLease) { l.UID = "new" }, true},
	} {
		before := held(101, "me")
		after := *before.DeepCopy()
		test.change(&after)
		if got := moreThanRenewed(event.UpdateEvent{ObjectOld: &before, ObjectNew: &after}); got != test.want {
			t.Errorf("%s: wakes %v, want %v", name, got, test.want)
		}
	}
}
