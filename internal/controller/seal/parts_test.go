// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

var reports = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "reports"}

func TestFieldManagerOfTheLongestNamesIsAllowed(t *testing.T) {
	longest, err := token.New(token.MaxGeneration, "abcdefgh")
	if err != nil {
		t.Fatal(err)
	}
	if longest, err = longest.WithOperation(token.OperationDelete); err != nil {
		t.Fatal(err)
	}
	manager := FieldManager(strings.Repeat("x", v1alpha1.MaxNameLength), longest.String())
	if errs := validation.ValidateFieldManager(manager, field.NewPath("fieldManager")); len(errs) > 0 {
		t.Errorf("field manager %q: %v", manager, errs)
	}
}

func TestJudgeSaysWhatAMarkNeeds(t *testing.T) {
	term := token.Token{Generation: 34, Term: "bbbbbbbb"}
	for name, test := range map[string]struct {
		mark string
		want judgement
	}{
		"no mark":                     {"", unmarked},
		"garbage":                     {"nonsense", unmarked},
		"an older generation":         {"33.bbbbbbbb/7", older},
		"the term":                    {"34.bbbbbbbb", current},
		"the term with an operation":  {"34.bbbbbbbb/delete", current},
		"another term":                {"34.aaaaaaaa", other},
		"the generation without term": {"34", other},
		"a newer generation":          {"35.aaaaaaaa", above},
		"an implausible generation":   {"999999999999999999.aaaaaaaa", above},
	} {
		if got, _ := judge(test.mark, term); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
}

// TestPropertyOnlyStampsThatRaiseAreMade: a mark at or above the term's is never stamped over, and every other one is.
func TestPropertyOnlyStampsThatRaiseAreMade(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) token.Token {
			return token.Token{
				Generation: rapid.Int64Range(1, 5).Draw(t, label+" generation"),
				Term:       rapid.SampledFrom([]string{"", "aaaaaaaa", "bbbbbbbb"}).Draw(t, label+" term"),
				Operation:  rapid.SampledFrom([]string{"", "7", "delete"}).Draw(t, label+" operation"),
			}
		}
		term, mark := draw("term"), draw("mark")
		verdict, _ := judge(mark.String(), term)
		safe := mark.Generation > term.Generation || mark.Possession() == term.Possession()
		if (verdict >= current) != safe {
			t.Fatalf("mark %s under %s: judged %d", mark, term, verdict)
		}
	})
}

func TestTargetsMatchWhatTheirGuardsSelect(t *testing.T) {
	selector := func(text string) labels.Selector {
		s, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	namespaces := map[string]labels.Set{"blue": {"team": "blue"}, "red": {"team": "red"}}
	object := func(namespace string, ls map[string]string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", Labels: ls}}
	}
	kept := map[string]string{"kept": "yes"}
	for name, test := range map[string]struct {
		target Target
		object *metav1.PartialObjectMetadata
		want   bool
	}{
		"everything":                           {Target{Matchers: []Matcher{{}}}, object("blue", nil), true},
		"no guard":                             {Target{}, object("blue", nil), false},
		"a label that is there":                {Target{Matchers: []Matcher{{Objects: selector("kept=yes")}}}, object("blue", kept), true},
		"a label that is not":                  {Target{Matchers: []Matcher{{Objects: selector("kept=yes")}}}, object("blue", nil), false},
		"one of two guards":                    {Target{Matchers: []Matcher{{Objects: selector("a=b")}, {Objects: selector("kept")}}}, object("blue", kept), true},
		"a namespace that is selected":         {Target{Matchers: []Matcher{{Namespaces: selector("team=blue")}}}, object("blue", nil), true},
		"a namespace that is not":              {Target{Matchers: []Matcher{{Namespaces: selector("team=blue")}}}, object("red", nil), false},
		"a namespace that is not known":        {Target{Matchers: []Matcher{{Namespaces: selector("team=blue")}}}, object("new", nil), false},
		"label and namespace of one guard":     {Target{Matchers: []Matcher{{Objects: selector("kept"), Namespaces: selector("team=blue")}}}, object("red", kept), false},
		"label and namespace of two guards":    {Target{Matchers: []Matcher{{Objects: selector("kept")}, {Namespaces: selector("team=blue")}}}, object("red", kept), true},
		"a protected namespace":                {Target{Except: []string{"kube-system"}, Matchers: []Matcher{{}}}, object("kube-system", nil), false},
		"a cluster-scoped object":              {Target{Except: []string{"kube-system"}, Matchers: []Matcher{{Namespaces: selector("team=blue")}}}, object("", nil), true},
		"a cluster-scoped object by its label": {Target{Matchers: []Matcher{{Objects: selector("kept"), Namespaces: selector("team=blue")}}}, object("", nil), false},
	} {
		if got := test.target.matches(test.object, func(n string) labels.Set { return namespaces[n] }); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
	if got := (Target{Matchers: []Matcher{{Objects: selector("kept=yes")}}}).listed(); got != "kept=yes" {
		t.Errorf("one guard is listed by %q", got)
	}
	if got := (Target{Matchers: []Matcher{{Objects: selector("kept=yes")}, {}}}).listed(); got != "" {
		t.Errorf("two guards are listed by %q", got)
	}
}

func TestAStampIsConditionedAndChangesNothing(t *testing.T) {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "u-1", ResourceVersion: "42"}}
	if diff := cmp.Diff(`{"metadata":{"resourceVersion":"42"}}`, string(condition(object, false))); diff != "" {
		t.Errorf("by version (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(`{"metadata":{"uid":"u-1"}}`, string(condition(object, true))); diff != "" {
		t.Errorf("by uid (-want +got):\n%s", diff)
	}
}

func TestAMissingRightIsToldFromARefusal(t *testing.T) {
	rbac := apierrors.NewForbidden(reports.GroupResource(), "a", errors.New(`User "manager" cannot patch resource "reports" in API group "example.com" in the namespace "x"`))
	refusal := apierrors.NewForbidden(reports.GroupResource(), "a", errors.New("ValidatingAdmissionPolicy 'fencedlease-marks' denied request"))
	for name, test := range map[string]struct {
		order Order
		err   error
		want  State
		says  string
	}{
		"of RBAC":            {Order{}, rbac, Forbidden, "{apiGroups: [example.com], resources: [reports], verbs: [get, list, watch, patch]}"},
		"of RBAC, to delete": {Order{DeleteLate: true}, rbac, Forbidden, "verbs: [get, list, watch, patch, delete]"},
		"of admission":       {Order{}, refusal, Failing, "denied request"},
		"of another kind":    {Order{}, errors.New("no quorum"), Failing, "patch reports.example.com: no quorum"},
	} {
		err := (&session{order: test.order}).explained(test.err, "patch", reports.GroupResource())
		if got := stateOf(err); got != test.want || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: state %s, want %s; %q does not say %q", name, got, test.want, err, test.says)
		}
		if !errors.Is(err, test.err) {
			t.Errorf("%s: the cause is lost", name)
		}
	}
}

func TestFailuresAreBounded(t *testing.T) {
	f := &failures{}
	if err := f.err(); err != nil {
		t.Errorf("nothing failed, got %v", err)
	}
	f.add(nil)
	for i := range 10 {
		f.add(fmt.Errorf("%d is broken", i))
	}
	if got, want := f.err().Error(), "0 is broken\n1 is broken\n2 is broken\n7 more objects failed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOrdersAreTheSameForOneTermAndItsGuards(t *testing.T) {
	order := Order{Lease: types.NamespacedName{Name: "a"}, UID: "u", Token: token.Token{Generation: 1, Term: "aaaaaaaa"}, Version: "1"}
	for name, test := range map[string]struct {
		change func(*Order)
		want   bool
	}{
		"sealed since":   {func(o *Order) { o.Sealed = true }, true},
		"another lease":  {func(o *Order) { o.UID = "v" }, false},
		"another term":   {func(o *Order) { o.Token.Term = "bbbbbbbb" }, false},
		"a later term":   {func(o *Order) { o.Token.Generation++ }, false},
		"other guards":   {func(o *Order) { o.Version = "2" }, false},
		"nothing at all": {func(*Order) {}, true},
	} {
		changed := order
		test.change(&changed)
		if got := order.same(changed); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
