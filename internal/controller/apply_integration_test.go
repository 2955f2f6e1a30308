//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"reflect"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applyv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/test/env"
)

// outdated reads every object as it was once: a watched copy after a restore of the store, of which no event tells.
type outdated struct {
	client.Client
	object client.Object
}

func (o outdated) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o.object.DeepCopyObject()).Elem())
	return nil
}

// An object that was written by others, by hand or by a manager of another registration, is healed, and can be changed
// afterwards: nobody but the controller owns anything of it, so that entries that are given up go whole.
func TestWhatWasHealedCanChange(t *testing.T) {
	cluster := env.StartT(t, env.Options{})
	c, err := env.Client(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	configuration := func(names ...string) *admissionv1.ValidatingWebhookConfiguration {
		o := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
			Name: "test-guards", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "default", UID: "1"}},
		}}
		for _, name := range names {
			o.Webhooks = append(o.Webhooks, admissionv1.ValidatingWebhook{
				Name: name + ".example.com", ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://localhost:1/" + name)},
				Rules: []admissionv1.RuleWithOperations{{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule: admissionv1.Rule{
						APIGroups: []string{"example.com"}, APIVersions: []string{"*"}, Resources: []string{name}, Scope: ptr.To(admissionv1.NamespacedScope),
					},
				}},
				MatchPolicy: ptr.To(admissionv1.Equivalent), NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
				SideEffects: ptr.To(admissionv1.SideEffectClassNone), TimeoutSeconds: ptr.To[int32](5), AdmissionReviewVersions: []string{"v1"},
				FailurePolicy: ptr.To(admissionv1.Ignore),
			})
		}
		o.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"))
		return o
	}
	apply := func(names ...string) change {
		t.Helper()
		w := wanted{
			"ValidatingWebhookConfiguration", configuration(names...), &admissionv1.ValidatingWebhookConfiguration{},
			contentOf(func(o *admissionv1.ValidatingWebhookConfiguration) any { return o.Webhooks }),
			applyv1.ValidatingWebhookConfiguration("test-guards"),
		}
		done, err := applyWhenDifferent(t.Context(), c, c, w, "")
		must(err)
		live := &admissionv1.ValidatingWebhookConfiguration{}
		must(c.Get(t.Context(), client.ObjectKeyFromObject(w.object), live))
		if !w.equal(live) {
			t.Errorf("%v: the configuration is %+v", names, live.Webhooks)
		}
		if done == unchanged {
			return done
		}
		for _, owner := range live.ManagedFields {
			if owner.Manager != string(FieldManager) || owner.Operation != metav1.ManagedFieldsOperationApply {
				t.Errorf("%v: %s owns fields by %s", names, owner.Manager, owner.Operation)
			}
		}
		return done
	}
	if apply("restored") != healed {
		t.Error("want the configuration written")
	}
	t.Run("after a restore", func(t *testing.T) {
		o := configuration("restored")
		kept := &admissionv1.ValidatingWebhookConfiguration{}
		must(c.Get(t.Context(), client.ObjectKeyFromObject(o), kept))
		apply("past")
		w := wanted{
			"ValidatingWebhookConfiguration", o, &admissionv1.ValidatingWebhookConfiguration{},
			contentOf(func(o *admissionv1.ValidatingWebhookConfiguration) any { return o.Webhooks }),
			applyv1.ValidatingWebhookConfiguration("test-guards"),
		}
		if done, err := applyWhenDifferent(t.Context(), outdated{c, kept}, c, w, ""); err != nil || done == unchanged {
			t.Errorf("it is taken for what it was before: %v, %v", done, err)
		}
	})
	byHand := func(patch string) {
		t.Helper()
		must(c.Patch(t.Context(), configuration(), client.RawPatch(types.JSONPatchType, []byte(patch)), client.FieldOwner("kubectl-edit")))
	}
	apply("a", "b")
	byHand(`[{"op":"replace","path":"/webhooks/1/clientConfig/url","value":"https://localhost:1/elsewhere"}]`)
	apply("a", "c")

	byHand(`[{"op":"add","path":"/webhooks/-","value":{"name":"by-hand.example.com","clientConfig":{"url":"https://localhost:1/x"},"sideEffects":"None","admissionReviewVersions":["v1"]}}]`)
	if done := apply("a", "c"); done != healed {
		t.Errorf("healing was %v", done)
	}
	apply("d")

	// A manager of another version, or under another name, leaves its entries behind.
	other := configuration("e", "f")
	must(c.Delete(t.Context(), configuration()))
	must(c.Create(t.Context(), other, client.FieldOwner("another")))
	apply("e", "g")
	apply("h")

	// A manager that ended before it had taken over everything.
	must(c.Get(t.Context(), client.ObjectKeyFromObject(other), other))
	other.Webhooks = configuration("h", "i").Webhooks
	must(c.Update(t.Context(), other, FieldManager))
	if done := apply("h", "i"); done != unchanged {
		t.Errorf("what was right already was %v", done)
	}
	apply("j")
}
