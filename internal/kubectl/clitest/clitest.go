// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clitest helps to test what the plugin prints.
package clitest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// Now is the time at which tests print.
var Now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// Golden compares a text with testdata/<name>.golden.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read golden file (go test -update writes it): %v", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// Lease returns a lease that worker-a has held for five minutes and renewed three seconds before Now. Each mutation changes
// it.
func Lease(mutations ...func(*v1alpha1.FencedLease)) *v1alpha1.FencedLease {
	lease := &v1alpha1.FencedLease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "reports", Name: "report-writer", UID: "7d3b6a5e", ResourceVersion: "48300", Generation: 2,
			CreationTimestamp: metav1.NewTime(Now.Add(-48 * time.Hour)),
		},
		Spec: v1alpha1.FencedLeaseSpec{
			LeaseDurationSeconds: 15, Enforcement: v1alpha1.EnforcementEnforce, Handover: v1alpha1.HandoverLazy, MinGeneration: ptr.To[int64](0),
			Guards: []v1alpha1.Guard{{APIGroups: []string{"example.com"}, Resources: []string{"reports/*"}}},
		},
		Status: v1alpha1.FencedLeaseStatus{
			Generation: ptr.To[int64](48215), Term: ptr.To("k3v9x2ab"), Token: ptr.To("48215.k3v9x2ab"), HolderIdentity: ptr.To("worker-a"),
			AcquireTime: ago(5 * time.Minute), RenewTime: ago(3 * time.Second), GenerationFloor: ptr.To[int64](48213),
			Handover: v1alpha1.HandoverLazy, Seal: v1alpha1.SealNotRequired, SealedGeneration: ptr.To[int64](0), ObservedGeneration: 2,
			Conditions: []metav1.Condition{
				condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonInForce, "a probe through each of 3 API servers was refused by the installed guards"),
				condition(v1alpha1.ConditionSealed, metav1.ConditionTrue, v1alpha1.ReasonSealNotRequired, "the term needs no seal"),
			},
		},
	}
	for _, mutate := range mutations {
		mutate(lease)
	}
	lease.SetGroupVersionKind(v1alpha1.Kind)
	return lease
}

// NeverHeld makes a lease one that nobody has held yet.
func NeverHeld(lease *v1alpha1.FencedLease) {
	s := &lease.Status
	s.Generation, s.Term, s.Token, s.HolderIdentity = ptr.To[int64](0), ptr.To(""), ptr.To(""), ptr.To("")
	s.AcquireTime, s.RenewTime = nil, nil
}

// Released makes a lease one that its holder has released.
func Released(lease *v1alpha1.FencedLease) { lease.Status.HolderIdentity = ptr.To("") }

// WithoutStatus makes a lease one that the controller has not seen yet.
func WithoutStatus(lease *v1alpha1.FencedLease) { lease.Status = v1alpha1.FencedLeaseStatus{} }

// Named gives a lease another name.
func Named(name string) func(*v1alpha1.FencedLease) {
	return func(lease *v1alpha1.FencedLease) { lease.Name = name }
}

// Guarded gives a lease other guards.
func Guarded(guards ...v1alpha1.Guard) func(*v1alpha1.FencedLease) {
	return func(lease *v1alpha1.FencedLease) { lease.Spec.Guards = guards }
}

func ago(d time.Duration) *metav1.MicroTime { return ptr.To(metav1.NewMicroTime(Now.Add(-d))) }

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: 2,
		LastTransitionTime: metav1.NewTime(Now.Add(-10 * time.Minute)),
	}
}
