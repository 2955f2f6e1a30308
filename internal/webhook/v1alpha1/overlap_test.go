// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	api "github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
)

var (
	namespaceNames = rapid.SampledFrom([]string{"a", "b", "c"})
	teams          = rapid.SampledFrom([]string{"x", "y"})
)

// drawSelector draws a namespaceSelector over the names of three namespaces and the label team, or none.
func drawSelector(t *rapid.T) *metav1.LabelSelector {
	if rapid.Bool().Draw(t, "own namespace") {
		return nil
	}
	selector := &metav1.LabelSelector{}
	if rapid.Bool().Draw(t, "matchLabels") {
		selector.MatchLabels = map[string]string{"kubernetes.io/metadata.name": namespaceNames.Draw(t, "name")}
	}
	operators := rapid.SampledFrom([]metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
	})
	for range rapid.IntRange(0, 2).Draw(t, "expressions") {
		requirement := metav1.LabelSelectorRequirement{Key: "kubernetes.io/metadata.name", Operator: operators.Draw(t, "operator")}
		values := namespaceNames
		if rapid.Bool().Draw(t, "by team") {
			requirement.Key, values = "team", teams
		}
		if requirement.Operator == metav1.LabelSelectorOpIn || requirement.Operator == metav1.LabelSelectorOpNotIn {
			requirement.Values = rapid.SliceOfNDistinct(values, 1, 2, rapid.ID[string]).Draw(t, "values")
		}
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	return selector
}

func drawPlaced(t *rapid.T) placed {
	return placed{
		namespace: namespaceNames.Draw(t, "namespace"),
		guard: api.Guard{
			APIGroups:         rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"example.com", "other.example.com"}), 1, 2, rapid.ID[string]).Draw(t, "groups"),
			Resources:         rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"reports", "reports/status", "jobs/*", "jobs"}), 1, 2, rapid.ID[string]).Draw(t, "resources"),
			NamespaceSelector: drawSelector(t),
		},
	}
}

func drawScopes(t *rapid.T) func(schema.GroupResource) guardkind.Scope {
	scopes := rapid.SampledFrom([]guardkind.Scope{"", guardkind.NamespaceScoped, guardkind.ClusterScoped})
	drawn := map[string]guardkind.Scope{"reports": scopes.Draw(t, "scope of reports"), "jobs": scopes.Draw(t, "scope of jobs")}
	return func(gr schema.GroupResource) guardkind.Scope { return drawn[gr.Resource] }
}

func TestOverlapIsSymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, scope := drawPlaced(t), drawPlaced(t), drawScopes(t)
		_, ab := mayMeet(a, b, scope)
		_, ba := mayMeet(b, a, scope)
		if ab != ba {
			t.Fatalf("a meets b: %t, b meets a: %t\na: %+v\nb: %+v", ab, ba, a, b)
		}
	})
}

// TestGuardsThatShareAnObjectOverlap goes through every place that an object can be in, with labels of its namespace that may
// be others when the second guard looks, and demands that the overlap of guards which both guard it is seen.
func TestGuardsThatShareAnObjectOverlap(t *testing.T) {
	gr := schema.GroupResource{Group: "example.com", Resource: "reports"}
	rapid.Check(t, func(t *rapid.T) {
		a, b, scope := drawPlaced(t), drawPlaced(t), drawScopes(t)
		a.guard.APIGroups, a.guard.Resources = []string{gr.Group}, []string{"reports/status"}
		b.guard.APIGroups, b.guard.Resources = []string{gr.Group}, []string{"reports/*"}
		// The scope of a kind that is not installed yet may turn out to be either.
		scopes := []guardkind.Scope{scope(gr)}
		if scopes[0] == "" {
			scopes = []guardkind.Scope{guardkind.NamespaceScoped, guardkind.ClusterScoped}
		}
		_, meet := mayMeet(a, b, scope)
		for _, kindScope := range scopes {
			for _, namespace := range []string{"a", "b", "c", "d"} {
				if reaches(t, a, kindScope, namespace) && reaches(t, b, kindScope, namespace) && !meet {
					t.Fatalf("both guard a report in %q (%s), but are said never to meet\na: %+v\nb: %+v", namespace, kindScope, a, b)
				}
			}
		}
	})
}

// reaches is what the registration and the handler do: it says whether a guard covers an object in a namespace, with some
// label that the namespace may have at some time.
func reaches(t *rapid.T, p placed, scope guardkind.Scope, namespace string) bool {
	if p.guard.NamespaceSelector == nil {
		return scope == guardkind.NamespaceScoped && p.namespace == namespace
	}
	if scope == guardkind.ClusterScoped {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(p.guard.NamespaceSelector)
	if err != nil {
		t.Fatalf("drew a bad selector: %v", err)
	}
	for _, set := range []labels.Set{{}, {"team": "x"}, {"team": "y"}} {
		set["kubernetes.io/metadata.name"] = namespace
		if selector.Matches(set) {
			return true
		}
	}
	return false
}

func TestMayMeet(t *testing.T) {
	reports := guard("example.com", "reports")
	for name, c := range map[string]struct {
		a, b api.Guard
		want bool
	}{
		"own namespaces":                           {a: reports, b: reports},
		"own namespace and all":                    {a: reports, b: wide(reports), want: true},
		"all and all":                              {a: wide(reports), b: wide(reports), want: true},
		"own namespace and one that is not it":     {a: reports, b: wide(reports, named(metav1.LabelSelectorOpIn, "c"))},
		"own namespace and all with a name":        {a: reports, b: wide(reports, named(metav1.LabelSelectorOpExists)), want: true},
		"own namespace and none":                   {a: reports, b: wide(reports, named(metav1.LabelSelectorOpDoesNotExist))},
		"all and none":                             {a: wide(reports), b: wide(reports, named(metav1.LabelSelectorOpDoesNotExist))},
		"two lists that share a name":              {a: wide(reports, named(metav1.LabelSelectorOpIn, "c", "d")), b: wide(reports, named(metav1.LabelSelectorOpIn, "d", "e")), want: true},
		"a list and all but this list":             {a: wide(reports, named(metav1.LabelSelectorOpIn, "c")), b: wide(reports, named(metav1.LabelSelectorOpNotIn, "c"))},
		"a list of two and all but one of them":    {a: wide(reports, named(metav1.LabelSelectorOpIn, "c", "d")), b: wide(reports, named(metav1.LabelSelectorOpNotIn, "c")), want: true},
		"an operator that nobody knows is no wall": {a: reports, b: wide(reports, named("Near", "c")), want: true},
		"status and scale of one resource":         {a: wide(guard("example.com", "reports/status")), b: wide(guard("example.com", "reports/scale")), want: true},
		"another group":                            {a: wide(reports), b: wide(guard("other.example.com", "reports"))},
	} {
		t.Run(name, func(t *testing.T) {
			_, meet := mayMeet(placed{"a", c.a}, placed{"b", c.b}, func(schema.GroupResource) guardkind.Scope { return guardkind.NamespaceScoped })
			if meet != c.want {
				t.Errorf("want %t, got %t", c.want, meet)
			}
		})
	}
}
