// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/clitest"
)

func TestLeaseIsDescribed(t *testing.T) {
	reports := schema.GroupResource{Group: "example.com", Resource: "reports"}
	for name, d := range map[string]description{
		"held": {
			lease:      clitest.Lease(),
			counts:     []count{{kind: reports, current: 9, older: 2, newer: 1, unmarked: 3}},
			withEvents: true,
			events: []corev1.Event{
				{Type: "Normal", Reason: "InForce", Message: "guards are in force", EventTime: metav1.NewMicroTime(clitest.Now.Add(-time.Hour))},
				{Type: "Warning", Reason: "WriteOverridden", Message: "ann wrote reports.example.com reports/daily without a token: repair", Count: 4, LastTimestamp: metav1.NewTime(clitest.Now.Add(-time.Minute))},
				{Type: "Warning", Reason: "Series", Message: "again and again", Series: &corev1.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(clitest.Now)}},
			},
		},
		"silent holder": {
			lease: clitest.Lease(func(l *v1alpha1.FencedLease) {
				l.Status.RenewTime.Time = clitest.Now.Add(-16 * time.Second)
				l.Status.Credentials = []v1alpha1.Credential{{ID: "JTI=1", Term: "k3v9x2ab"}, {ID: "JTI=0", Term: "aaaaaaaa"}}
			}),
			withEvents: true,
		},
		"released": {lease: clitest.Lease(clitest.Released)},
		"never held, without guards": {
			lease: clitest.Lease(clitest.NeverHeld, clitest.Guarded()), withEvents: true, eventsProblem: errors.New("events is forbidden"),
		},
		"without status": {
			lease: clitest.Lease(clitest.WithoutStatus), counts: []count{{kind: reports, problem: "you may not list it: ask for get and list on this kind"}},
		},
		"wide guards": {
			lease: clitest.Lease(clitest.Guarded(
				v1alpha1.Guard{APIGroups: []string{"example.com"}, Resources: []string{"reports"}, NamespaceSelector: &metav1.LabelSelector{}},
				v1alpha1.Guard{
					APIGroups: []string{"example.com"}, Resources: []string{"invoices", "invoices/status"},
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}},
					ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}},
					Subjects: []v1alpha1.Subject{
						{Kind: v1alpha1.SubjectServiceAccount, Namespace: "jobs", Name: "worker"}, {Kind: v1alpha1.SubjectGroup, Name: "writers"},
					},
				},
			)),
			counts: []count{{kind: reports}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d.now = clitest.Now
			var out strings.Builder
			if err := d.print(&out); err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, name, out.String())
		})
	}
}

func TestMarksAreCounted(t *testing.T) {
	var c count
	for _, mark := range []string{"48215.k3v9x2ab/1", "48214.aaaaaaaa", "48300", "no token", ""} {
		object := &metav1.PartialObjectMetadata{}
		if mark != "" {
			object.Annotations = map[string]string{v1alpha1.TokenKey("report-writer"): mark}
		}
		c.add(object, clitest.Lease())
	}
	if want := "5 (1 with the lease's generation, 1 with an older mark, 1 with a mark above the lease's generation, 2 without a mark)"; c.String() != want {
		t.Errorf("count:\nwant %s\ngot  %s", want, c)
	}
}
