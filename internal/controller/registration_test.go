// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
	"github.com/fencedlease/fencedlease/pkg/token"
)

var update = flag.Bool("update", false, "write the golden files anew")

func group(resource string) schema.GroupResource {
	return schema.GroupResource{Group: "example.com", Resource: resource}
}

func testInput(leases ...v1alpha1.FencedLease) Input {
	return Input{
		Leases: leases,
		Kinds: map[schema.GroupResource]guardkind.Kind{
			group("reports"): {Class: guardkind.CRD, Scope: guardkind.NamespaceScoped},
			group("jobs"):    {Class: guardkind.CRD, Scope: guardkind.NamespaceScoped},
			group("globes"):  {Class: guardkind.CRD, Scope: guardkind.ClusterScoped},
			group("stats"):   {Class: guardkind.Aggregated},
			{Group: "rbac.authorization.k8s.io", Resource: "roles"}: {Class: guardkind.Builtin},
		},
		CRDUID: "crd-uid", Namespace: "fencedlease-system", SystemWriters: []string{"system:b", "system:a"},
		Sealer:   "system:serviceaccount:fencedlease-system:controller-manager",
		Endpoint: Endpoint{ServiceNamespace: "fencedlease-system", ServiceName: "webhook"}, Bundle: []byte("certificates"), MinVersion: "4711",
	}
}

func lease(namespace, name string, guards ...v1alpha1.Guard) v1alpha1.FencedLease {
	return v1alpha1.FencedLease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), Generation: 1},
		Spec:       v1alpha1.FencedLeaseSpec{Enforcement: v1alpha1.EnforcementEnforce, Guards: guards},
	}
}

func audit(l v1alpha1.FencedLease) v1alpha1.FencedLease {
	l.Spec.Enforcement = v1alpha1.EnforcementAudit
	return l
}

func own(resources ...string) v1alpha1.Guard {
	return v1alpha1.Guard{APIGroups: []string{"example.com"}, Resources: resources}
}

func wide(selector *metav1.LabelSelector, resources ...string) v1alpha1.Guard {
	g := own(resources...)
	g.NamespaceSelector = selector
	return g
}

func matching(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func mustBuild(t interface {
	Helper()
	Fatalf(string, ...any)
}, in Input) Registration {
	t.Helper()
	r, err := Build(in)
	if err != nil {
		t.Fatalf("Build: %v", err)
	}
	return r
}

func text(t interface {
	Helper()
	Fatalf(string, ...any)
}, r Registration) string {
	t.Helper()
	var all []string
	for _, w := range wantedObjects(r) {
		out, err := yaml.Marshal(w.object)
		if err != nil {
			t.Fatalf("write %s: %v", w.kind, err)
		}
		all = append(all, "# "+w.kind+"\n"+string(out))
	}
	for _, uid := range sortedKeys(r.Problems) {
		for _, p := range r.Problems[uid] {
			all = append(all, fmt.Sprintf("# %s: guards[%d]: %s: %s\n", uid, p.Guard, p.Reason, p.Message))
		}
	}
	return strings.Join(all, "---\n")
}

func TestRegistrationIsAsInTheGoldenFile(t *testing.T) {
	for name, in := range map[string]Input{
		"no guards": testInput(lease("reports", "bare")),
		"own namespaces": testInput(
			lease("team-a", "writer", own("reports/*", "jobs")),
			lease("team-b", "writer", own("reports/*")),
			lease("team-c", "other", own("reports", "reports/status")),
		),
		"wide guards and leases in audit": testInput(
			lease("team-a", "everywhere", wide(&metav1.LabelSelector{}, "globes/*", "jobs")),
			lease("team-a", "blue", wide(matching("team", "blue"), "reports", "reports/status")),
			audit(lease("team-b", "trial", own("reports/*", "jobs"))),
			audit(lease("team-c", "wide-trial", wide(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "stage", Operator: metav1.LabelSelectorOpIn, Values: []string{"test", "dev"}},
				{Key: "legacy", Operator: metav1.LabelSelectorOpDoesNotExist},
				{Key: "owner", Operator: metav1.LabelSelectorOpExists},
				{Key: "team", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"red"}},
			}}, "reports"))),
		),
		"what cannot be installed": testInput(
			lease("team-a", "hopeful",
				own("globes"), own("stats"), own("unknown/status"),
				v1alpha1.Guard{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"roles"}},
				v1alpha1.Guard{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases"}},
				wide(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Nonsense"}}}, "reports"),
			),
			lease("kube-system", "system", own("reports")),
			lease("fencedlease-system", "manager", own("reports")),
		),
		"by url": func() Input {
			in := testInput(lease("team-a", "writer", own("reports")))
			in.Endpoint = Endpoint{URL: "https://127.0.0.1:9443"}
			in.SystemWriters = nil
			return in
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "_")+".yaml")
			got := text(t, mustBuild(t, in))
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("registration (-want +got):\n%s", diff)
			}
		})
	}
}

// drawLeases draws leases of few names, namespaces and guards, so that they often have something in common.
func drawLeases(t *rapid.T) []v1alpha1.FencedLease {
	resource := rapid.SampledFrom([]string{"reports", "reports/*", "reports/status", "jobs", "jobs/scale", "globes", "unknown"})
	value := rapid.SampledFrom([]string{"a", "b", "c"})
	guard := rapid.Custom(func(t *rapid.T) v1alpha1.Guard {
		g := own(rapid.SliceOfNDistinct(resource, 1, 3, rapid.ID[string]).Draw(t, "resources")...)
		switch rapid.IntRange(0, 3).Draw(t, "reach") {
		case 0:
			g.NamespaceSelector = &metav1.LabelSelector{}
		case 1:
			g.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "k", Operator: metav1.LabelSelectorOpIn, Values: rapid.SliceOfN(value, 1, 3).Draw(t, "values")},
				{Key: value.Draw(t, "key"), Operator: metav1.LabelSelectorOpExists},
			}}
		}
		return g
	})
	names := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) types.NamespacedName {
		return types.NamespacedName{Namespace: "ns-" + value.Draw(t, "namespace"), Name: value.Draw(t, "name")}
	}), 0, 6, rapid.ID[types.NamespacedName]).Draw(t, "leases")
	leases := make([]v1alpha1.FencedLease, len(names))
	for i, n := range names {
		leases[i] = lease(n.Namespace, n.Name, rapid.SliceOfN(guard, 0, 3).Draw(t, "guards")...)
		if rapid.Bool().Draw(t, "audit") {
			leases[i] = audit(leases[i])
		}
	}
	return leases
}

func TestAnyOrderOfLeasesAndSelectorsGivesTheSameObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leases := drawLeases(t)
		want := text(t, mustBuild(t, testInput(leases...)))
		shuffled := make([]v1alpha1.FencedLease, len(leases))
		random := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		for i, j := range random.Perm(len(leases)) {
			shuffled[j] = *leases[i].DeepCopy()
			for _, g := range shuffled[j].Spec.Guards {
				slices.Reverse(g.Resources)
				if g.NamespaceSelector != nil {
					slices.Reverse(g.NamespaceSelector.MatchExpressions)
					for _, e := range g.NamespaceSelector.MatchExpressions {
						slices.Reverse(e.Values)
					}
				}
			}
		}
		if diff := cmp.Diff(want, text(t, mustBuild(t, testInput(shuffled...)))); diff != "" {
			t.Fatalf("registration (-want +got):\n%s", diff)
		}
	})
}

// TestEntriesCallForExactlyWhatIsGuarded compares the entries with the guards, place by place.
func TestEntriesCallForExactlyWhatIsGuarded(t *testing.T) {
	places := []labels.Set{}
	for _, name := range []string{"ns-a", "ns-b", "ns-c", "other", "kube-system", "fencedlease-system"} {
		for _, k := range []string{"a", "b"} {
			places = append(places, labels.Set{"kubernetes.io/metadata.name": name, "k": k, "a": "x"})
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		in := testInput(drawLeases(t)...)
		r := mustBuild(t, in)
		for _, place := range places {
			for _, resource := range []string{"reports", "jobs", "unknown", "globes"} {
				for _, subresource := range []string{"", "status", "scale"} {
					what := target{group(resource), subresource}
					want := guardedAt(in, what, place)
					judged, stamped := calledAt(t, r, what, place)
					if judged != want {
						t.Fatalf("%s in %v: called %v, guarded %v", what.rule(), place, judged, want)
					}
					// A subresource has no mark of its own, and a write to it moves none.
					if want := want && subresource == ""; stamped != want {
						t.Fatalf("%s in %v: called for stamps %v, want %v", what.rule(), place, stamped, want)
					}
				}
			}
		}
	})
}

// guardedAt says by the words of the API whether some lease guards a target in a namespace.
func guardedAt(in Input, what target, place labels.Set) bool {
	namespace := place["kubernetes.io/metadata.name"]
	if what.Resource == "globes" || namespace == "kube-system" || namespace == in.Namespace {
		// Cluster-scoped objects have no namespace; the others are never guarded.
		return false
	}
	for _, l := range in.Leases {
		for _, g := range l.Spec.Guards {
			if !slices.Contains(g.Resources, what.rule()) && !slices.Contains(g.Resources, what.Resource+"/*") {
				continue
			}
			if g.NamespaceSelector == nil {
				if l.Namespace == namespace {
					return true
				}
				continue
			}
			selector, err := metav1.LabelSelectorAsSelector(g.NamespaceSelector)
			if err == nil && selector.Matches(place) {
				return true
			}
		}
	}
	return false
}

// calledAt says whether an entry of the right configuration matches, as the API server matches: one that judges, and one
// that stamps.
func calledAt(t *rapid.T, r Registration, what target, place labels.Set) (judged, stamped bool) {
	matches := func(rules []admissionv1.RuleWithOperations, s *metav1.LabelSelector) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatalf("selector of an entry: %v", err)
		}
		return selector.Matches(place) && what.Resource != "globes" && slices.ContainsFunc(rules, func(rule admissionv1.RuleWithOperations) bool {
			return slices.Contains(rule.APIGroups, what.Group) && slices.Contains(rule.Resources, what.rule())
		})
	}
	for _, w := range r.Guards.Webhooks {
		judged = judged || matches(w.Rules, w.NamespaceSelector)
	}
	for _, w := range r.Status.Webhooks {
		if strings.HasPrefix(w.Name, stampEntry) {
			stamped = stamped || matches(w.Rules, w.NamespaceSelector)
		} else {
			judged = judged || matches(w.Rules, w.NamespaceSelector)
		}
	}
	return judged, stamped
}

// The second hop is for those writes alone that may have to be marked for their credential.
func TestEntriesForStampsAreNarrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := mustBuild(t, testInput(drawLeases(t)...))
		names := map[string]bool{}
		for _, w := range r.Status.Webhooks {
			if names[w.Name] {
				t.Fatalf("two entries of the name %s", w.Name)
			}
			names[w.Name] = true
			stamps := strings.HasPrefix(w.Name, stampEntry)
			if got := strings.HasPrefix(*w.ClientConfig.Service.Path, "/fence-stamp/4711"); got != stamps {
				t.Fatalf("%s calls %s", w.Name, *w.ClientConfig.Service.Path)
			}
			if want := map[bool]admissionv1.ReinvocationPolicyType{
				true: admissionv1.IfNeededReinvocationPolicy, false: admissionv1.NeverReinvocationPolicy,
			}[stamps]; *w.ReinvocationPolicy != want {
				t.Fatalf("%s: reinvocation %s, want %s", w.Name, *w.ReinvocationPolicy, want)
			}
			if !stamps {
				continue
			}
			var conditions []string
			for _, c := range w.MatchConditions {
				conditions = append(conditions, c.Name)
			}
			if diff := cmp.Diff([]string{"to-be-marked-for-its-credential"}, conditions); diff != "" {
				t.Fatalf("conditions of %s (-want +got):\n%s", w.Name, diff)
			}
			for _, rule := range w.Rules {
				if diff := cmp.Diff([]admissionv1.OperationType{admissionv1.Create, admissionv1.Update}, rule.Operations); diff != "" {
					t.Fatalf("operations of %s (-want +got):\n%s", w.Name, diff)
				}
			}
		}
	})
}

func TestTheHashOfGuardsChangesWithGuardsAlone(t *testing.T) {
	before := []v1alpha1.FencedLease{lease("a", "x", own("reports")), lease("b", "y")}
	hash := GuardsHash(before)
	for name, test := range map[string]struct {
		change func([]v1alpha1.FencedLease) []v1alpha1.FencedLease
		same   bool
	}{
		"a renewal":            {func(l []v1alpha1.FencedLease) []v1alpha1.FencedLease { l[0].ResourceVersion = "99"; return l }, true},
		"another order":        {func(l []v1alpha1.FencedLease) []v1alpha1.FencedLease { slices.Reverse(l); return l }, true},
		"a new spec":           {func(l []v1alpha1.FencedLease) []v1alpha1.FencedLease { l[0].Generation++; return l }, false},
		"a lease more":         {func(l []v1alpha1.FencedLease) []v1alpha1.FencedLease { return append(l, lease("c", "z")) }, false},
		"a lease less":         {func(l []v1alpha1.FencedLease) []v1alpha1.FencedLease { return l[:1] }, false},
		"a lease created anew": {func(l []v1alpha1.FencedLease) []v1alpha1.FencedLease { l[0].UID = "new"; return l }, false},
	} {
		if got := GuardsHash(test.change(slices.Clone(before))); (got == hash) != test.same {
			t.Errorf("%s: hash is the same: %v, want %v", name, got == hash, test.same)
		}
	}
}

func TestTheHashOfTheContentLeavesTheBundleOut(t *testing.T) {
	in := testInput(lease("a", "x", own("reports")))
	hash := mustBuild(t, in).Hash
	rotated := in
	rotated.Bundle = []byte("others")
	r := mustBuild(t, rotated)
	if r.Hash != hash {
		t.Errorf("hash changed with the bundle")
	}
	if !bytes.Equal(r.Guards.Webhooks[0].ClientConfig.CABundle, rotated.Bundle) {
		t.Errorf("bundle is %q", r.Guards.Webhooks[0].ClientConfig.CABundle)
	}
	for name, change := range map[string]func(*Input){
		"another version": func(in *Input) { in.MinVersion = "4712" },
		"another guard":   func(in *Input) { in.Leases = []v1alpha1.FencedLease{lease("a", "x", own("jobs"))} },
		"another writer":  func(in *Input) { in.SystemWriters = []string{"x"} },
		"another owner":   func(in *Input) { in.CRDUID = "new" },
	} {
		changed := in
		change(&changed)
		if mustBuild(t, changed).Hash == hash {
			t.Errorf("%s: hash is the same", name)
		}
	}
}

func TestNamespacesThatGuardTheSameShareAnEntry(t *testing.T) {
	var leases []v1alpha1.FencedLease
	for i := range 500 {
		leases = append(leases, lease(fmt.Sprintf("ns-%03d", i), "writer", own("reports/*")))
	}
	r := mustBuild(t, testInput(leases...))
	if n := len(r.Guards.Webhooks); n != 2 {
		t.Fatalf("%d entries, want the probe's and one more", n)
	}
	if n := len(r.Guards.Webhooks[1].NamespaceSelector.MatchExpressions[0].Values); n != 500 {
		t.Errorf("the entry has %d namespaces, want 500", n)
	}
	one := mustBuild(t, testInput(leases[:1]...))
	if one.Guards.Webhooks[1].Name != r.Guards.Webhooks[1].Name {
		t.Errorf("a namespace more changes the entry's name")
	}
}

func TestOnlyGuardsInAuditFailOpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := testInput(drawLeases(t)...)
		enforcing := slices.DeleteFunc(slices.Clone(in.Leases), func(l v1alpha1.FencedLease) bool { return l.Spec.Enforcement == v1alpha1.EnforcementAudit })
		r, want := mustBuild(t, in), mustBuild(t, testInput(enforcing...))
		closed := func(r Registration) map[string]any {
			entries := map[string]any{}
			for _, w := range r.Guards.Webhooks[1:] {
				if *w.FailurePolicy == admissionv1.Fail {
					entries[w.Name] = []any{w.Rules, w.NamespaceSelector}
				}
			}
			for _, w := range r.Status.Webhooks[1:] {
				if *w.FailurePolicy == admissionv1.Fail {
					entries["status "+w.Name] = []any{w.Rules, w.NamespaceSelector}
				}
			}
			return entries
		}
		if diff := cmp.Diff(closed(want), closed(r)); diff != "" {
			t.Fatalf("entries that fail closed (-without leases in Audit +with them):\n%s", diff)
		}
	})
}

func TestNamesOfEntriesAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := mustBuild(t, testInput(drawLeases(t)...))
		seen := map[string]bool{}
		for _, w := range r.Guards.Webhooks {
			if seen[w.Name] {
				t.Fatalf("two entries are called %s", w.Name)
			}
			seen[w.Name] = true
		}
	})
}

// TestThePolicyKnowsTheSameTokens compares the policy's notion of a mark with that of package token.
func TestThePolicyKnowsTheSameTokens(t *testing.T) {
	pattern := regexp.MustCompile(celToken)
	check := func(t interface{ Errorf(string, ...any) }, text string) {
		_, err := token.Parse(text)
		if got := pattern.MatchString(text); got != (err == nil) {
			t.Errorf("%q: the policy says %v, package token says %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1", "0", "01", "999999999999999999", "1000000000000000000", "1.aaaaaaaa", "1.aaaaaaa", "1.AAAAAAAA", "1/", "1/x", "1.aaaaaaaa/x.y_z:-",
		"1/" + strings.Repeat("x", 128), "1/" + strings.Repeat("x", 129), " 1", "1 ", "1\n", "-1", "+1", "1.aaaaaaaa/x/y", "1.aaaaaaaa/é"} {
		check(t, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.StringMatching(`[0-9]{0,19}([.][a-z0-9A-Z]{0,9})?(/[-_.:A-Za-z0-9 /]{0,130})?`).Draw(t, "text"))
	})
}
