// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package guarded_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/clitest"
	"github.com/fencedlease/fencedlease/internal/kubectl/guarded"
)

func TestGuardsFindTheirObjects(t *testing.T) {
	reports := schema.GroupResource{Group: "example.com", Resource: "reports"}
	team := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	own := v1alpha1.Guard{APIGroups: []string{"example.com"}, Resources: []string{"reports", "reports/status"}}
	wide := v1alpha1.Guard{APIGroups: []string{"example.com"}, Resources: []string{"reports/*"}, NamespaceSelector: &metav1.LabelSelector{}}
	some := v1alpha1.Guard{APIGroups: []string{"example.com"}, Resources: []string{"reports"}, NamespaceSelector: team}
	gold := v1alpha1.Guard{APIGroups: []string{"example.com"}, Resources: []string{"reports"}, ObjectSelector: team}
	inA := labels.Set{"team": "a"}
	for name, c := range map[string]struct {
		guards []v1alpha1.Guard
		object guarded.Object
		want   []int
	}{
		"own namespace":                          {[]v1alpha1.Guard{own}, guarded.Object{Resource: reports, Namespace: "reports"}, []int{0}},
		"another namespace":                      {[]v1alpha1.Guard{own}, guarded.Object{Resource: reports, Namespace: "other"}, nil},
		"cluster-scoped":                         {[]v1alpha1.Guard{own, wide}, guarded.Object{Resource: reports}, []int{1}},
		"another group":                          {[]v1alpha1.Guard{own}, guarded.Object{Resource: schema.GroupResource{Group: "example.org", Resource: "reports"}, Namespace: "reports"}, nil},
		"a named subresource":                    {[]v1alpha1.Guard{own}, guarded.Object{Resource: reports, Subresource: "status", Namespace: "reports"}, []int{0}},
		"a subresource left open":                {[]v1alpha1.Guard{own, wide}, guarded.Object{Resource: reports, Subresource: "scale", Namespace: "reports"}, []int{1}},
		"all namespaces but kube-system":         {[]v1alpha1.Guard{wide}, guarded.Object{Resource: reports, Namespace: "kube-system"}, nil},
		"a selected namespace":                   {[]v1alpha1.Guard{some}, guarded.Object{Resource: reports, Namespace: "selected"}, []int{0}},
		"a namespace that is not selected":       {[]v1alpha1.Guard{some}, guarded.Object{Resource: reports, Namespace: "other"}, nil},
		"a selected object":                      {[]v1alpha1.Guard{gold}, guarded.Object{Resource: reports, Namespace: "reports", Labels: []labels.Set{inA}}, []int{0}},
		"an object that is not selected":         {[]v1alpha1.Guard{gold}, guarded.Object{Resource: reports, Namespace: "reports", Labels: []labels.Set{nil}}, nil},
		"an object that leaves the guard":        {[]v1alpha1.Guard{gold}, guarded.Object{Resource: reports, Namespace: "reports", Labels: []labels.Set{nil, inA}}, []int{0}},
		"an object whose labels are not known":   {[]v1alpha1.Guard{gold}, guarded.Object{Resource: reports, Namespace: "reports", AnyLabels: true}, []int{0}},
		"several guards of one lease all report": {[]v1alpha1.Guard{own, wide}, guarded.Object{Resource: reports, Namespace: "reports"}, []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			c.object.NamespaceLabels = func(context.Context) (labels.Set, error) {
				if c.object.Namespace == "selected" {
					return inA, nil
				}
				return nil, nil
			}
			got, err := guarded.By(t.Context(), clitest.Lease(clitest.Guarded(c.guards...)), c.object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("guards (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("labels that cannot be read are no answer", func(t *testing.T) {
		forbidden := errors.New("forbidden")
		_, err := guarded.By(t.Context(), clitest.Lease(clitest.Guarded(some)), guarded.Object{
			Resource: reports, Namespace: "selected", NamespaceLabels: func(context.Context) (labels.Set, error) { return nil, forbidden },
		})
		if !errors.Is(err, forbidden) {
			t.Errorf("want %v, got %v", forbidden, err)
		}
	})
}
