//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
)

// TestOnAPIServer runs one story after the other on one control plane with two API servers.
func TestOnAPIServer(t *testing.T) {
	s := newSuite(t)
	r := s.run()
	for _, story := range []struct {
		name string
		tell func(*suite, *running)
	}{
		{"a guard is registered, owned and in force", registered},
		{"the mark policy lets no mark fall", marksHold},
		{"a lease in Audit is left out of the mark policy", auditIsLeftOut},
		{"a token in the request becomes the mark", tokensAreStamped},
		{"a stamp of a seal becomes the mark and calls nobody", stamps},
		{"only guarded writes call the webhook", onlyGuardedWritesCall},
		{"a late kind is guarded once it is there", lateKind},
		{"what cannot be guarded is skipped with a reason", skipped},
		{"drift is healed", driftIsHealed},
		{"the floor has three memories", floors},
		{"a lease that is deleted and created again reuses no generation", recreated},
		{"a generation above the lease's raises the floor", generationBehind},
		{"an implausible mark is reported and raises nothing", implausible},
		{"a missing right is reported", unreadable},
		{"possession shows in conditions and metrics", possession},
		{"many namespaces share one entry", manyNamespaces},
		{"a lease without guards is ready", withoutGuards},
		{"a wide guard reaches cluster-scoped objects and no protected namespace", wideGuard},
		{"a probe goes through every API server", probes},
		{"the CA bundle reaches the installed configuration and nothing else is touched (F-12)", bundleByService},
	} {
		t.Run(story.name, func(t *testing.T) { story.tell(s.in(t), r) })
	}
	t.Run("another replica writes nothing anew (F-15)", func(t *testing.T) { s.in(t).rollOut(r) })
}

func registered(s *suite, r *running) {
	namespace := s.env.CreateNamespace(s)
	lease := s.createLease(env.NewLease(namespace, "writer"))
	s.awaitReady(lease)

	version, err := strconv.ParseInt(lease.ResourceVersion, 10, 64)
	s.must(err)
	if floor := *lease.Status.GenerationFloor; floor <= 0 || floor >= version {
		s.Errorf("floor is %d, want a resourceVersion of the lease before %d", floor, version)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: CRDName}}
	s.refresh(crd)
	for _, o := range registrationObjects() {
		s.refresh(o)
		want := []metav1.OwnerReference{{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: CRDName, UID: crd.UID}}
		if diff := cmp.Diff(want, o.GetOwnerReferences()); diff != "" {
			s.Errorf("owners of %T (-want +got):\n%s", o, diff)
		}
		if o.GetLabels()[managedByLabel] != managedBy {
			s.Errorf("labels of %T are %v", o, o.GetLabels())
		}
	}
	marks := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: MarksName}}
	s.refresh(marks)
	if marks.Status.TypeChecking != nil && len(marks.Status.TypeChecking.ExpressionWarnings) > 0 {
		s.Errorf("the API server warns about expressions: %+v", marks.Status.TypeChecking)
	}
	validation := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ValidationName}}
	s.refresh(validation)
	if got, want := ptr.Deref(validation.Webhooks[0].ClientConfig.URL, ""), s.hook.url+"/validate"; got != want {
		s.Errorf("url of the validation webhook is %q, want %q", got, want)
	}
	if n := testutil.ToFloat64(r.metrics.probes.WithLabelValues(string(ProbeInForce))); n < 1 {
		s.Errorf("no probe was counted")
	}
}

// marksHold is the table of what may happen to a mark. The webhook admits everything here, so a refusal is the policy's.
func marksHold(s *suite, _ *running) {
	namespace := s.env.CreateNamespace(s)
	s.awaitReady(s.createLease(env.NewLease(namespace, "writer")))
	key := v1alpha1.TokenKey("writer")
	const stored = "34.aaaaaaaa/1"
	for i, test := range []struct {
		name    string
		patch   string
		refused string
	}{
		{"lowered", patchMark(key, "33.bbbbbbbb"), "the write sets 33.bbbbbbbb"},
		{"removed", patchMark(key, nil), "the write removes it"},
		{"all annotations nulled", `{"metadata":{"annotations":null}}`, "the write removes it"},
		{"garbage", patchMark(key, "nonsense"), "the write sets nonsense"},
		{"a number that is no token", patchMark(key, "035"), "the write sets 035"},
		{"empty", patchMark(key, ""), "the write sets :"},
		{"long garbage", patchMark(key, strings.Repeat("x", 5000)), "xxx..."},
		{"raised", patchMark(key, "35.bbbbbbbb"), ""},
		{"equal with a new operation", patchMark(key, "34.aaaaaaaa/2"), ""},
		{"kept", `{"spec":{"value":"new"}}`, ""},
		{"another annotation", `{"metadata":{"annotations":{"example.com/x":"y"}}}`, ""},
	} {
		s.T.Run(test.name, func(t *testing.T) {
			s := s.in(t)
			o := s.report(namespace, "marked-"+strconv.Itoa(i), map[string]string{key: stored})
			// The client is a member of system:masters.
			err := s.client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(test.patch)))
			s.checkRefusal(err, test.refused, key, stored)
		})
	}
	s.T.Run("by PUT and through another version", func(t *testing.T) {
		s := s.in(t)
		s.report(namespace, "put", map[string]string{key: stored})
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(env.ReportKind(env.ReportOldVersion))
		o.SetNamespace(namespace)
		o.SetName("put")
		s.refresh(o)
		o.SetAnnotations(map[string]string{key: "1"})
		s.checkRefusal(s.client.Update(t.Context(), o), "the write sets 1:", key, stored)
	})
	s.T.Run("through status", func(t *testing.T) {
		s := s.in(t)
		o := s.report(namespace, "status", map[string]string{key: stored})
		// The API server drops the annotations of a status write, so it is admitted and changes no mark.
		s.must(s.client.Status().Patch(t.Context(), o, client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+key+`":"1"}},"status":{"phase":"x"}}`))))
		s.refresh(o)
		if got := o.GetAnnotations()[key]; got != stored {
			t.Errorf("mark is %q, want %q", got, stored)
		}
	})
	s.T.Run("garbage that was stored before is no mark", func(t *testing.T) {
		s := s.in(t)
		for i, garbage := range []string{"nonsense", "0", "-1", "34.short", "1234567890123456789", ""} {
			o := s.report(namespace, "garbage-"+strconv.Itoa(i), map[string]string{key: garbage})
			s.must(s.client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patchMark(key, nil)))))
		}
	})
	s.T.Run("many marks among many annotations stay within the budget", func(t *testing.T) {
		s := s.in(t)
		annotations := map[string]string{}
		for i := range 200 {
			annotations[v1alpha1.TokenKey("lease-"+strconv.Itoa(i))] = "34.aaaaaaaa"
		}
		for i := range 500 {
			annotations["example.com/a-"+strconv.Itoa(i)] = strings.Repeat("x", 50)
		}
		o := s.report(namespace, "many", annotations)
		s.must(s.client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":"new"}}`))))
	})
	s.T.Run("two values of one key are refused", func(t *testing.T) {
		s := s.in(t)
		o := s.report(namespace, "several", nil)
		err := s.carrying(map[string][]string{key: {"35.aaaaaaaa", "36.aaaaaaaa"}}).
			Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":"new"}}`)))
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "2 values of "+key) {
			t.Errorf("got %v", err)
		}
	})
}

func patchMark(key string, value any) string {
	text, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	return string(text)
}

func (s *suite) checkRefusal(err error, want, key, stored string) {
	s.Helper()
	if want == "" {
		s.must(err)
		return
	}
	var status apierrors.APIStatus
	if !apierrors.IsForbidden(err) || !asStatus(err, &status) {
		s.Fatalf("got %v, want a refusal", err)
	}
	for _, part := range []string{"the mark " + key + " must not fall or vanish", "carries " + stored, want, "Read the object again", MarksName} {
		if !strings.Contains(err.Error(), part) {
			s.Errorf("refusal %q does not say %q", err, part)
		}
	}
}

func asStatus(err error, status *apierrors.APIStatus) bool {
	s, ok := err.(apierrors.APIStatus)
	*status = s
	return ok && s.Status().Code == http.StatusForbidden
}

func auditIsLeftOut(s *suite, _ *running) {
	namespace, other := s.env.CreateNamespace(s), s.env.CreateNamespace(s)
	wide := s.env.CreateNamespace(s, map[string]string{"team": "blue"})
	s.createLease(env.NewLease(other, "trial"))
	audit := func(l *v1alpha1.FencedLease) { l.Spec.Enforcement = v1alpha1.EnforcementAudit }
	s.createLease(env.NewLease(namespace, "trial", audit))
	s.createLease(env.NewLease(wide, "wide-trial", audit, func(l *v1alpha1.FencedLease) {
		l.Spec.Guards[0].NamespaceSelector = &metav1.LabelSelector{
			MatchLabels:      map[string]string{"team": "blue"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "gone", Operator: metav1.LabelSelectorOpDoesNotExist}},
		}
	}))
	enforced := s.createLease(env.NewLease(namespace, "serious"))
	widely := s.createLease(env.NewLease(wide, "serious"))
	s.awaitReady(enforced)
	s.awaitReady(widely)
	for i, test := range []struct {
		namespace, lease string
		refused          bool
	}{
		{namespace, "trial", false},
		{other, "trial", true},
		{namespace, "serious", true},
		{wide, "wide-trial", false},
		{other, "wide-trial", true},
		{wide, "serious", true},
	} {
		key := v1alpha1.TokenKey(test.lease)
		o := s.report(test.namespace, "audited-"+strconv.Itoa(i), map[string]string{key: "34"})
		err := s.client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(patchMark(key, "33"))))
		if apierrors.IsForbidden(err) != test.refused {
			s.Errorf("lowering the mark of %s in %s: got %v, want refused %v", test.lease, test.namespace, err, test.refused)
		}
	}
	s.deleteLeases(namespace, other, wide)
}

func tokensAreStamped(s *suite, _ *running) {
	namespace := s.env.CreateNamespace(s)
	s.awaitReady(s.createLease(env.NewLease(namespace, "writer")))
	key := v1alpha1.TokenKey("writer")
	carrying := func(value string) client.Client { return s.carrying(map[string][]string{key: {value}}) }
	mark := func(o client.Object) string { s.Helper(); s.refresh(o); return o.GetAnnotations()[key] }
	expect := func(o client.Object, want string) {
		s.Helper()
		if got := mark(o); got != want {
			s.Errorf("mark of %s is %q, want %q", o.GetName(), got, want)
		}
	}

	created := env.NewReport(namespace, "stamped", "v")
	s.must(carrying("34.aaaaaaaa").Create(s.Context(), created))
	expect(created, "34.aaaaaaaa")

	s.must(carrying("35.aaaaaaaa/1").Patch(s.Context(), created, client.RawPatch(types.MergePatchType, []byte(`{}`))))
	expect(created, "35.aaaaaaaa/1")
	for _, field := range created.GetManagedFields() {
		if strings.Contains(field.FieldsV1.GetRawString(), key) {
			s.Errorf("the mark is owned by %s (F-19)", field.Manager)
		}
	}

	// Inherited, so not the writer's own: the request's wins.
	s.refresh(created)
	s.must(carrying("36.aaaaaaaa").Update(s.Context(), created))
	expect(created, "36.aaaaaaaa")

	// A stale token is refused by the policy alone, as it is stamped first.
	err := carrying("33.aaaaaaaa").Patch(s.Context(), created, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":"stale"}}`)))
	s.checkRefusal(err, "the write sets 33.aaaaaaaa", key, "36.aaaaaaaa")

	// What the webhook has to refuse is left for it to see.
	disagreeing := env.NewReport(namespace, "disagreeing", "v")
	disagreeing.SetAnnotations(map[string]string{key: "50.aaaaaaaa"})
	s.must(carrying("51.aaaaaaaa").Create(s.Context(), disagreeing))
	expect(disagreeing, "50.aaaaaaaa")
	malformed := env.NewReport(namespace, "malformed", "v")
	s.must(carrying("nonsense").Create(s.Context(), malformed))
	expect(malformed, "")

	// By server-side apply as well, with other annotations of its own.
	applied := env.NewReport(namespace, "applied", "v")
	applied.SetAnnotations(map[string]string{"example.com/a": "b"})
	s.must(carrying("34.aaaaaaaa").Apply(s.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("one")))
	expect(applied, "34.aaaaaaaa")
	again := env.NewReport(namespace, "applied", "v")
	s.must(carrying("34.aaaaaaaa/2").Apply(s.Context(), client.ApplyConfigurationFromUnstructured(again), client.FieldOwner("two")))
	expect(again, "34.aaaaaaaa/2")
}

func onlyGuardedWritesCall(s *suite, _ *running) {
	guarded, open := s.env.CreateNamespace(s), s.env.CreateNamespace(s)
	lease := env.NewLease(guarded, "writer", func(l *v1alpha1.FencedLease) {
		l.Spec.Guards[0].Resources = []string{"reports", "reports/status"}
	})
	s.awaitReady(s.createLease(lease))
	s.hook.take()

	for _, namespace := range []string{guarded, open} {
		o := s.report(namespace, "counted", nil)
		s.must(s.client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":"new"}}`))))
		s.must(s.client.Status().Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"x"}}`))))
		s.must(s.client.SubResource("scale").Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`))))
		s.must(s.client.Create(s.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "counted"}}))
		s.must(s.client.Delete(s.Context(), o))
	}
	// Deletes of system writers do not call out.
	o := s.report(guarded, "collected", nil)
	config := s.env.Config()
	config.Impersonate.UserName = "system:serviceaccount:kube-system:generic-garbage-collector"
	config.Impersonate.Groups = []string{"system:masters"}
	collector, err := env.Client(config)
	s.must(err)
	s.must(collector.Delete(s.Context(), o))
	// FencedLeases do not either, whatever they are called.
	s.must(s.client.Create(s.Context(), env.NewLease(open, "fencedlease-probe-guards-0123456789abcdef"), client.DryRunAll))

	want := map[string]int{
		"CREATE reports " + guarded: 2, "UPDATE reports " + guarded: 1, "UPDATE reports/status " + guarded: 1, "DELETE reports " + guarded: 1,
	}
	if diff := cmp.Diff(want, s.hook.take()); diff != "" {
		s.Errorf("calls (-want +got):\n%s", diff)
	}
}

// widgets makes the guarded definition one for widgets.
func widgets(scope apiextensionsv1.ResourceScope, plural string) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Scope = scope
		singular := strings.TrimSuffix(plural, "s")
		kind := strings.ToUpper(singular[:1]) + singular[1:]
		crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: singular, Kind: kind, ListKind: kind + "List"}
	}
}

func lateKind(s *suite, _ *running) {
	namespace := s.env.CreateNamespace(s)
	lease := s.createLease(env.NewLease(namespace, "late", func(l *v1alpha1.FencedLease) { l.Spec.Guards[0].Resources = []string{"widgets/*"} }))
	c := s.awaitCondition(lease, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonKindMissing)
	if !strings.Contains(c.Message, "guards[0]: widgets.example.com is not installed") {
		s.Errorf("message is %q", c.Message)
	}
	s.must(s.env.InstallGuardedCRD(s.Context(), widgets(apiextensionsv1.NamespaceScoped, "widgets")))
	s.awaitReady(lease)
}

func skipped(s *suite, r *running) {
	namespace := s.env.CreateNamespace(s)
	s.must(s.env.InstallGuardedCRD(s.Context(), widgets(apiextensionsv1.ClusterScoped, "globes")))
	lease := s.createLease(env.NewLease(namespace, "hopeful", func(l *v1alpha1.FencedLease) {
		l.Spec.Guards = []v1alpha1.Guard{
			{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"roles"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases"}},
			{APIGroups: []string{env.GuardedGroup}, Resources: []string{"globes"}},
			{APIGroups: []string{env.GuardedGroup}, Resources: []string{"reports"}},
			{APIGroups: []string{env.GuardedGroup}, Resources: []string{"reports"}, NamespaceSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Nonsense"}},
			}},
		}
	}))
	c := s.awaitCondition(lease, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonGuardSkipped)
	for _, part := range []string{"guards[0]: roles.rbac", "guards[1]: fencedleases", "guards[2]: globes.example.com is cluster-scoped", "guards[4]: the namespaceSelector"} {
		if !strings.Contains(c.Message, part) {
			s.Errorf("message %q does not say %q", c.Message, part)
		}
	}
	if n := testutil.ToFloat64(r.metrics.skippedGuards.WithLabelValues(string(ProblemBuiltin))); n != 1 {
		s.Errorf("%v guards of built-in groups counted, want 1", n)
	}
	// The guard that can be installed is in force, and what is skipped can be written.
	key := v1alpha1.TokenKey("hopeful")
	o := s.report(namespace, "guarded", map[string]string{key: "34"})
	if err := s.client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(patchMark(key, "33")))); !apierrors.IsForbidden(err) {
		s.Errorf("got %v, want a refusal", err)
	}
	s.hook.take()
	s.must(s.client.Create(s.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "free"}}))
	if calls := s.hook.take(); len(calls) != 0 {
		s.Errorf("calls: %v", calls)
	}
	s.deleteLeases(namespace)
	s.deleteDefinition("globes.example.com")
}

func driftIsHealed(s *suite, _ *running) {
	namespace := s.env.CreateNamespace(s)
	lease := s.createLease(env.NewLease(namespace, "writer"))
	s.awaitReady(lease)
	want := s.contents()
	for _, drift := range []struct {
		name string
		make func() error
	}{
		{"the webhook configuration is deleted", func() error { return s.client.Delete(s.Context(), registrationObjects()[0]) }},
		{"the policy is deleted", func() error { return s.client.Delete(s.Context(), registrationObjects()[2]) }},
		{"a binding is deleted", func() error { return s.client.Delete(s.Context(), registrationObjects()[5]) }},
		{"a failurePolicy is changed", func() error {
			o := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: GuardsName}}
			s.refresh(o)
			o.Webhooks[1].FailurePolicy = ptr.To(admissionv1.Ignore)
			return s.client.Update(s.Context(), o)
		}},
		{"a condition is added", func() error {
			o := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: GuardsName}}
			s.refresh(o)
			o.Webhooks[1].MatchConditions = append(o.Webhooks[1].MatchConditions, admissionv1.MatchCondition{Name: "never", Expression: "false"})
			return s.client.Update(s.Context(), o)
		}},
		{"validations are removed", func() error {
			o := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: MarksName}}
			s.refresh(o)
			o.Spec.Validations = o.Spec.Validations[:1]
			return s.client.Update(s.Context(), o)
		}},
	} {
		s.eventually(drift.name, drift.make) // the registration may be written at the same time
		s.eventually(drift.name, func() error {
			got, err := s.tryContents()
			if err != nil {
				return err
			}
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("registration (-want +got):\n%s", diff)
			}
			return nil
		})
	}
	s.awaitReady(lease)
}

// contents returns what counts of the registration.
func (s *suite) contents() map[string]any {
	s.Helper()
	contents, err := s.tryContents()
	s.must(err)
	return contents
}

func (s *suite) tryContents() (map[string]any, error) {
	contents := map[string]any{}
	for _, o := range registrationObjects() {
		if err := s.client.Get(s.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return nil, err
		}
		o.SetUID("")
		o.SetResourceVersion("")
		o.SetCreationTimestamp(metav1.Time{})
		o.SetGeneration(0)
		o.SetManagedFields(nil)
		if policy, ok := o.(*admissionv1.ValidatingAdmissionPolicy); ok {
			policy.Status = admissionv1.ValidatingAdmissionPolicyStatus{}
		}
		contents[fmt.Sprintf("%T", o)] = o
	}
	return contents, nil
}

func floors(s *suite, r *running) {
	namespace := s.env.CreateNamespace(s)
	blue := s.env.CreateNamespace(s, map[string]string{"team": "blue"})
	key := v1alpha1.TokenKey("restored")
	// Restored by a backup tool: annotations are there, status is not (F-22).
	s.report(namespace, "a", map[string]string{key: "5000000000.aaaaaaaa"})
	s.report(namespace, "b", map[string]string{key: "4000000000"})
	s.report(namespace, "forged", map[string]string{key: "1000000000000001"})
	s.report(namespace, "garbage", map[string]string{key: "9000000000x"})
	s.report(blue, "elsewhere", map[string]string{key: "6000000000"})
	for i := range pageSize {
		s.report(namespace, "z-"+strconv.Itoa(i), nil)
	}
	s.report(namespace, "zz-last", map[string]string{key: "5500000000", v1alpha1.TokenKey("other"): "5600000000"})

	lease := s.createLease(env.NewLease(namespace, "restored"))
	if got := *lease.Status.GenerationFloor; got != 5500000000 {
		s.Errorf("floor is %d, want the highest plausible mark on guarded objects, 5500000000", got)
	}
	s.acquire(lease, "holder")
	if got := *lease.Status.Generation; got != 5500000001 {
		s.Errorf("generation is %d, want one above the floor", got)
	}
	// Guards that reach further bring more marks.
	s.eventually("widen the guard, whatever the controller writes in between", func() error {
		s.refresh(lease)
		lease.Spec.Guards[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
		return s.client.Update(s.Context(), lease)
	})
	s.awaitCondition(lease, v1alpha1.ConditionGenerationBehind, metav1.ConditionTrue, v1alpha1.ReasonHigherGenerationSeen)
	if got := *lease.Status.GenerationFloor; got != 6000000000 {
		s.Errorf("floor is %d, want 6000000000", got)
	}
	s.deleteLeases(namespace)

	// What a replica remembers of a lease that is gone.
	r.reports.Report(Observed{Lease: types.NamespacedName{Namespace: namespace, Name: "remembered"}, Generation: 7000000000, Evidence: EvidenceStore})
	remembered := s.createLease(env.NewLease(namespace, "remembered"))
	if got := *remembered.Status.GenerationFloor; got != 7000000000 {
		s.Errorf("floor is %d, want 7000000000", got)
	}
	s.deleteLeases(namespace)
}

func recreated(s *suite, _ *running) {
	namespace := s.env.CreateNamespace(s)
	highest := int64(0)
	for range 5 {
		lease := s.createLease(env.NewLease(namespace, "again", func(l *v1alpha1.FencedLease) { l.Spec.Guards = nil }))
		for range 3 {
			s.acquire(lease, "holder")
			if got := *lease.Status.Generation; got <= highest {
				s.Errorf("generation %d was handed out after %d", got, highest)
			}
			highest = *lease.Status.Generation
		}
		s.must(s.client.Delete(s.Context(), lease))
	}
}

func generationBehind(s *suite, r *running) {
	namespace := s.env.CreateNamespace(s)
	lease := s.createLease(env.NewLease(namespace, "behind"))
	s.acquire(lease, "holder")
	s.awaitCondition(lease, v1alpha1.ConditionGenerationBehind, metav1.ConditionFalse, v1alpha1.ReasonGenerationCurrent)
	key := client.ObjectKeyFromObject(lease)
	seen := *lease.Status.Generation + 100
	r.reports.Report(Observed{Lease: key, Generation: seen, Evidence: EvidenceStore})
	s.awaitCondition(lease, v1alpha1.ConditionGenerationBehind, metav1.ConditionTrue, v1alpha1.ReasonStoreWentBack)
	if got := *lease.Status.GenerationFloor; got != seen {
		s.Errorf("floor is %d, want %d", got, seen)
	}
	s.awaitEvent(lease, v1alpha1.ConditionGenerationBehind)
	if n := testutil.ToFloat64(r.metrics.floorRaises.WithLabelValues(string(EvidenceStore))); n != 1 {
		s.Errorf("%v raises counted, want 1", n)
	}
	r.reports.Report(Observed{Lease: key, Generation: token.MaxPlausibleGeneration + 1, Evidence: EvidenceRequest})
	s.acquire(lease, "next")
	if got := *lease.Status.Generation; got != seen+1 {
		s.Errorf("generation is %d, want %d", got, seen+1)
	}
	s.awaitCondition(lease, v1alpha1.ConditionGenerationBehind, metav1.ConditionFalse, v1alpha1.ReasonGenerationCurrent)
}

func implausible(s *suite, r *running) {
	namespace := s.env.CreateNamespace(s)
	key := v1alpha1.TokenKey("target")
	forged := s.report(namespace, "forged", map[string]string{key: "1000000000000001"})
	lease := s.createLease(env.NewLease(namespace, "target"))
	c := s.awaitCondition(lease, v1alpha1.ConditionImplausibleMark, metav1.ConditionTrue, v1alpha1.ReasonImplausibleMarkSeen)
	if !strings.Contains(c.Message, "reports.example.com "+namespace+"/forged") {
		s.Errorf("message is %q", c.Message)
	}
	version, err := strconv.ParseInt(lease.ResourceVersion, 10, 64)
	s.must(err)
	if got := *lease.Status.GenerationFloor; got >= version {
		s.Errorf("floor is %d, want less than %d", got, version)
	}
	s.awaitEvent(lease, v1alpha1.ConditionImplausibleMark)
	s.must(s.client.Delete(s.Context(), forged))
	s.awaitCondition(lease, v1alpha1.ConditionImplausibleMark, metav1.ConditionFalse, v1alpha1.ReasonMarksPlausible)
	r.reports.Report(Observed{
		Lease: client.ObjectKeyFromObject(lease), Generation: token.MaxPlausibleGeneration + 1, Evidence: EvidenceMark, Object: "reports.example.com x/y",
	})
	s.awaitCondition(lease, v1alpha1.ConditionImplausibleMark, metav1.ConditionTrue, v1alpha1.ReasonImplausibleMarkSeen)
}

// unreadable runs the controllers' reads of marks as a user who may not list the guarded kind.
func unreadable(s *suite, r *running) {
	namespace := s.env.CreateNamespace(s)
	r.stop()
	user, err := s.env.AddUser("limited")
	s.must(err)
	role := s.shippedRole("limited")
	s.must(s.client.Create(s.Context(), role))
	s.must(s.client.Create(s.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "limited"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "limited"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "limited"}},
	}))
	// What the shipped role allows is enough to write the whole registration.
	for _, o := range registrationObjects() {
		s.must(s.client.Delete(s.Context(), o))
	}
	limited := s.runAs(user)
	s.report(namespace, "a", map[string]string{v1alpha1.TokenKey("blind"): "5000000000"})
	lease := s.createLease(env.NewLease(namespace, "blind"))
	s.awaitReady(lease)
	s.awaitEvent(lease, EventMarksUnreadable)
	if got := *lease.Status.GenerationFloor; got <= 0 || got >= 5000000000 {
		s.Errorf("floor is %d, want the resourceVersion of the lease", got)
	}
	// Once the right is there, the next look raises the floor.
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{env.GuardedGroup}, Resources: []string{"reports"}, Verbs: []string{"list"}})
	s.must(s.client.Update(s.Context(), role))
	s.eventually("floor after the right was given", func() error {
		s.refresh(lease)
		if got := *lease.Status.GenerationFloor; got != 5000000000 {
			return fmt.Errorf("floor is %d", got)
		}
		return nil
	})
	limited.stop()
	*r = *s.run()
}

// shippedRole returns the manager's role as it is generated from markers, with the rights that it has in two namespaces, in
// all of them.
func (s *suite) shippedRole(name string) *rbacv1.ClusterRole {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(s.env.ModuleRoot(), "config", "rbac", "role.yaml"))
	s.must(err)
	role := &rbacv1.ClusterRole{}
	s.must(yaml.UnmarshalStrict(text, role))
	role.Name = name
	role.Rules = append(role.Rules,
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list"}},
	)
	return role
}

func possession(s *suite, r *running) {
	namespace := s.env.CreateNamespace(s)
	lease := s.createLease(env.NewLease(namespace, "held", func(l *v1alpha1.FencedLease) { l.Spec.Handover = v1alpha1.HandoverSeal }))
	s.awaitCondition(lease, v1alpha1.ConditionHeld, metav1.ConditionFalse, v1alpha1.ReasonNeverHeld)
	s.awaitCondition(lease, v1alpha1.ConditionSealed, metav1.ConditionTrue, v1alpha1.ReasonSealNotRequired)
	before := testutil.ToFloat64(r.metrics.handovers)
	s.acquire(lease, "one")
	s.awaitCondition(lease, v1alpha1.ConditionHeld, metav1.ConditionTrue, v1alpha1.ReasonAcquired)
	s.awaitCondition(lease, v1alpha1.ConditionSealed, metav1.ConditionTrue, v1alpha1.ReasonSealed)
	if got := testutil.ToFloat64(r.metrics.handovers) - before; got != 1 {
		s.Errorf("%v handovers counted, want 1", got)
	}
	s.awaitReady(lease)
	version := s.versions()
	for range 20 {
		s.must(env.Renew(s.Context(), s.client, lease))
	}
	// Whatever the renewals had caused would come before what the release causes.
	s.must(env.Release(s.Context(), s.client, lease))
	s.awaitCondition(lease, v1alpha1.ConditionHeld, metav1.ConditionFalse, v1alpha1.ReasonReleased)
	if diff := cmp.Diff(version, s.versions()); diff != "" {
		s.Errorf("renewals rewrote the registration (-want +got):\n%s", diff)
	}
}

func manyNamespaces(s *suite, _ *running) {
	first := s.env.CreateNamespace(s)
	s.createLease(env.NewLease(first, "shared"))
	for range 20 {
		s.must(s.client.Create(s.Context(), env.NewLease(s.env.CreateNamespace(s), "shared")))
	}
	last := s.createLease(env.NewLease(s.env.CreateNamespace(s), "shared"))
	s.awaitReady(last)
	o := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: GuardsName}}
	s.refresh(o)
	for _, w := range o.Webhooks {
		if len(w.NamespaceSelector.MatchExpressions) == 1 && len(w.NamespaceSelector.MatchExpressions[0].Values) >= 22 {
			return
		}
	}
	s.Errorf("no entry has all namespaces: %+v", o.Webhooks)
}

func wideGuard(s *suite, _ *running) {
	namespace, blue := s.env.CreateNamespace(s), s.env.CreateNamespace(s, map[string]string{"team": "blue"})
	s.must(s.env.InstallGuardedCRD(s.Context(), widgets(apiextensionsv1.ClusterScoped, "planets")))
	lease := s.createLease(env.NewLease(namespace, "wide", func(l *v1alpha1.FencedLease) {
		l.Spec.Guards[0].Resources = []string{"planets/*", "reports"}
		l.Spec.Guards[0].NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: []string{blue, managerNamespace, "kube-system"}},
		}}
	}))
	s.awaitReady(lease)
	s.hook.take()
	key := v1alpha1.TokenKey("wide")
	planet := &unstructured.Unstructured{}
	planet.SetGroupVersionKind(env.ReportKind(env.ReportVersion).GroupVersion().WithKind("Planet"))
	planet.SetName("earth")
	planet.SetAnnotations(map[string]string{key: "34"})
	s.must(s.client.Create(s.Context(), planet))
	lower := client.RawPatch(types.MergePatchType, []byte(patchMark(key, "33")))
	if err := s.client.Patch(s.Context(), planet, lower); !apierrors.IsForbidden(err) {
		s.Errorf("lowering the mark of a cluster-scoped object: got %v, want a refusal", err)
	}
	if err := s.client.Patch(s.Context(), s.report(blue, "wide", map[string]string{key: "34"}), lower); !apierrors.IsForbidden(err) {
		s.Errorf("lowering a mark in a selected namespace: got %v, want a refusal", err)
	}
	for _, protected := range []string{managerNamespace, "kube-system"} {
		s.must(s.client.Patch(s.Context(), s.report(protected, "free", map[string]string{key: "34"}), lower))
	}
	if diff := cmp.Diff(map[string]int{fmt.Sprintf("CREATE planets %s", ""): 1, "CREATE reports " + blue: 1}, s.hook.take()); diff != "" {
		s.Errorf("calls (-want +got):\n%s", diff)
	}
	// The scan of a wide guard reads both.
	s.must(s.client.Create(s.Context(), env.NewLease(blue, "wide-too", func(l *v1alpha1.FencedLease) { l.Spec.Guards = lease.Spec.Guards })))
	s.deleteLeases(namespace, blue)
	s.deleteDefinition("planets.example.com")
}

func probes(s *suite, _ *running) {
	lease := s.createLease(env.NewLease(s.env.CreateNamespace(s), "probed"))
	s.awaitReady(lease)
	marks := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: MarksName}}
	s.refresh(marks)
	hash := marks.Annotations[ContentHashAnnotation]
	var hosts []string
	for i := range s.env.APIServers() {
		hosts = append(hosts, hostOf(s.env.Via(i, s.env.Config()).Host))
	}
	fixed := func(addresses ...string) Endpoints {
		return func(context.Context) ([]string, error) { return addresses, nil }
	}
	for _, test := range []struct {
		name      string
		endpoints Endpoints
		hash      string
		want      []ProbeOutcome
		fallback  string
	}{
		{"in force on both", fixed(hosts...), hash, []ProbeOutcome{ProbeInForce, ProbeInForce}, ""},
		{"another registration on both", fixed(hosts...), "0123456789abcdef", []ProbeOutcome{ProbeNotYet, ProbeNotYet}, ""},
		{"one server is gone", fixed(hosts[0], "127.0.0.1:1"), hash, []ProbeOutcome{ProbeInForce, ProbeUnreachable}, ""},
		{"no endpoints", fixed(), hash, []ProbeOutcome{ProbeInForce}, "has no endpoints"},
		{"none can be reached", fixed("127.0.0.1:1"), hash, []ProbeOutcome{ProbeInForce}, "no API server can be reached directly"},
		{"no right to list endpoints", func(context.Context) ([]string, error) { return nil, fmt.Errorf("forbidden") }, hash, []ProbeOutcome{ProbeInForce}, "cannot be listed"},
	} {
		report, err := NewProber(s.env.Config(), managerNamespace, test.endpoints, patience).Probe(s.Context(), test.hash)
		s.must(err)
		var got []ProbeOutcome
		for _, r := range report.Results {
			got = append(got, r.Outcome)
		}
		if diff := cmp.Diff(test.want, got); diff != "" || !strings.Contains(report.Fallback, test.fallback) || (test.fallback == "") != (report.Fallback == "") {
			s.Errorf("%s: outcomes (-want +got):\n%s\n%+v", test.name, diff, report)
		}
	}
	addresses, err := EndpointsOf(s.client)(s.Context())
	s.must(err)
	if len(addresses) != 0 && len(addresses) != s.env.APIServers() {
		s.Errorf("endpoints are %v", addresses)
	}
}

// bundleByService gives the bundle to a configuration of the same shape, as the API servers of this test call by URL.
func bundleByService(s *suite, r *running) {
	r.stop()
	defer func() {
		*r = *s.run()
		s.eventually("the installed configuration calls by URL again", func() error {
			o := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ValidationName}}
			s.refresh(o)
			if o.Webhooks[0].ClientConfig.URL == nil {
				return fmt.Errorf("it calls by %+v", o.Webhooks[0].ClientConfig)
			}
			return nil
		})
	}()
	current := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ValidationName}}
	s.must(s.client.Delete(s.Context(), current))
	if changed, err := injectBundle(s.Context(), s.client, s.client, Endpoint{ServiceName: "x"}, s.bundle); changed || err != nil {
		s.Errorf("injecting into nothing: %v, %v", changed, err)
	}
	manifest := func() *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"))
		o.SetName(ValidationName)
		// A dry run would call; so this one matches nothing that is written here.
		hook := map[string]any{
			"name": "policy.fencedleases.coordination.fencedlease.io", "sideEffects": "None", "admissionReviewVersions": []any{"v1"},
			"clientConfig": map[string]any{"service": map[string]any{"namespace": managerNamespace, "name": "webhook", "path": "/validate"}},
			"rules":        []any{map[string]any{"apiGroups": []any{"nothing.example.com"}, "apiVersions": []any{"*"}, "operations": []any{"CREATE"}, "resources": []any{"*"}}},
		}
		o.Object["webhooks"] = []any{hook}
		return o
	}
	apply := func() {
		s.Helper()
		s.must(s.client.Apply(s.Context(), client.ApplyConfigurationFromUnstructured(manifest()), client.FieldOwner("kubectl")))
	}
	apply()
	for pass, wantChanged := range []bool{true, false} {
		changed, err := injectBundle(s.Context(), s.client, s.client, Endpoint{ServiceName: "webhook", ServiceNamespace: managerNamespace}, s.bundle)
		if err != nil || changed != wantChanged {
			s.Errorf("pass %d: changed %v, %v, want %v", pass, changed, err, wantChanged)
		}
	}
	s.refresh(current)
	version := current.ResourceVersion
	// Without force: nobody owns what the other owns.
	for range 3 {
		apply()
	}
	s.refresh(current)
	if current.ResourceVersion != version || string(current.Webhooks[0].ClientConfig.CABundle) != string(s.bundle) || current.Webhooks[0].ClientConfig.Service == nil {
		s.Errorf("applying the manifest again changed it: %s, before %s: %+v", current.ResourceVersion, version, current.Webhooks[0].ClientConfig)
	}
}

// TestRegistrationGoesWithItsDefinition uninstalls the definition while the controllers run (F-13).
func TestRegistrationGoesWithItsDefinition(t *testing.T) {
	s := newSuiteOn(t, env.Options{ControllerManager: true})
	s.run()
	namespace := s.env.CreateNamespace(s)
	s.awaitReady(s.createLease(env.NewLease(namespace, "writer")))
	guarded := s.report(namespace, "guarded", map[string]string{v1alpha1.TokenKey("writer"): "34"})

	s.must(s.client.Delete(s.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: CRDName}}))
	s.eventually("everything is collected", func() error {
		for _, o := range append(registrationObjects(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: CRDName}}) {
			if err := s.client.Get(s.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T is still there: %w", o, err)
			}
		}
		return nil
	})
	s.eventually("the API server has noticed", func() error {
		return s.client.Patch(s.Context(), guarded, client.RawPatch(types.MergePatchType, []byte(patchMark(v1alpha1.TokenKey("writer"), nil))))
	})
	s.must(s.client.Delete(s.Context(), guarded))

	// Installed anew, it begins anew, with a new owner.
	s.must(s.env.InstallCRDs(s.Context()))
	s.eventually("the definition is served", func() error {
		return s.client.Create(s.Context(), env.NewLease(namespace, "again"))
	})
	again := env.NewLease(namespace, "again")
	s.eventually("the registration is back", func() error {
		s.refresh(again)
		for _, o := range registrationObjects() {
			if err := s.client.Get(s.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
		}
		return nil
	})
	s.awaitReady(again)
}

func withoutGuards(s *suite, _ *running) {
	lease := s.createLease(env.NewLease(s.env.CreateNamespace(s), "bare", func(l *v1alpha1.FencedLease) { l.Spec.Guards = nil }))
	s.awaitCondition(lease, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonNoGuards)
}

// rollOut ends the controllers and starts them anew: nothing may be written again.
func (s *suite) rollOut(r *running) {
	leases := &v1alpha1.FencedLeaseList{}
	s.must(s.client.List(s.Context(), leases))
	all := make([]*v1alpha1.FencedLease, len(leases.Items))
	for i := range leases.Items {
		all[i] = &leases.Items[i]
		if len(all[i].Spec.Guards) > 0 {
			s.awaitReady(all[i])
		}
	}
	// Leases that earlier stories have deleted are gone from the registration as well.
	s.eventually("the registration of what is there", func() error {
		guards := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: GuardsName}}
		s.refresh(guards)
		if got, want := guards.Annotations[GuardsHashAnnotation], GuardsHash(leases.Items); got != want {
			return fmt.Errorf("guards are %s, want %s", got, want)
		}
		return nil
	})
	r.stop()
	before := s.versions(all...)
	next := s.run()
	s.eventually("first pass of the new replica", func() error {
		if n := testutil.ToFloat64(next.metrics.probes.WithLabelValues(string(ProbeInForce))); n < 1 {
			return fmt.Errorf("no probe yet")
		}
		return nil
	})
	if diff := cmp.Diff(before, s.versions(all...)); diff != "" {
		s.Errorf("written by the new replica (-want +got):\n%s", diff)
	}
	// A lease that is created now is ready only after everything before it was looked at.
	witness := s.createLease(env.NewLease(s.env.CreateNamespace(s), "witness", func(l *v1alpha1.FencedLease) { l.Spec.Guards = nil }))
	s.awaitCondition(witness, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonNoGuards)
	s.must(s.client.Delete(s.Context(), witness))
	after := s.versions(all...)
	for name := range before {
		// The witness itself changes the registration: it is one more FencedLease.
		if strings.Contains(name, "FencedLease") && before[name] != after[name] {
			s.Errorf("%s was written: %s, before %s", name, after[name], before[name])
		}
	}
	if n := testutil.CollectAndCount(next.metrics.applies); n == 0 {
		s.Errorf("no series of applies")
	}
}

func (s *suite) deleteLeases(namespaces ...string) {
	s.Helper()
	for _, namespace := range namespaces {
		s.must(s.client.DeleteAllOf(s.Context(), &v1alpha1.FencedLease{}, client.InNamespace(namespace)))
	}
}

// awaitEvent waits for an event about a lease.
func (s *suite) awaitEvent(lease *v1alpha1.FencedLease, reason string) {
	s.Helper()
	s.eventually("event "+reason, func() error {
		list := &eventsv1.EventList{}
		s.must(s.client.List(s.Context(), list, client.InNamespace(lease.Namespace)))
		for _, e := range list.Items {
			if e.Reason == reason && e.Regarding.UID == lease.UID {
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(list.Items))
	})
}
