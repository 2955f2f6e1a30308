//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

const (
	collectorUser = "system:serviceaccount:kube-system:generic-garbage-collector"
	migratorUser  = "system:serviceaccount:kube-system:storage-version-migrator-controller"
)

// TestProtection keeps the fence from being taken down by mistake, on two API servers, and shows the ways past that.
func TestProtection(t *testing.T) {
	s := newSuite(t)
	r := s.run()
	s.awaitReady(s.createLease(env.NewLease(s.env.CreateNamespace(s), "writer")))
	// Administrators of the cluster are refused, too, through each API server.
	for i := range 2 {
		jane := s.as(i, "jane")
		s.eventually("the policies are in force", func() error {
			for _, o := range []client.Object{registrationObjects()[0], definition("reports.example.com")} {
				if err := jane.Delete(s.Context(), o, client.DryRunAll); !apierrors.IsForbidden(err) {
					return errorText(err)
				}
			}
			return nil
		})
	}
	t.Run("the API server warns about no expression", func(t *testing.T) { s.in(t).warnsOfNothing() })
	t.Run("the registration is the manager's", func(t *testing.T) { s.in(t).registrationIsTheManagers() })
	t.Run("a definition of a guarded kind stays", func(t *testing.T) { s.in(t).definitionsStay() })
	t.Run("without the manager, deleting the binding is the way past it", func(t *testing.T) { s.in(t).breakGlass(r) })
}

type unexpected struct{ error }

func (u unexpected) Error() string {
	if u.error == nil {
		return "it was admitted"
	}
	return u.error.Error()
}

func errorText(err error) error { return unexpected{err} }

// as returns the client of another administrator through one API server.
func (s *suite) as(apiServer int, user string) client.Client {
	s.Helper()
	config := s.env.Via(apiServer, s.env.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	c, err := env.Client(config)
	s.must(err)
	return c
}

func definition(name string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

func (s *suite) warnsOfNothing() {
	for _, name := range []string{DefinitionsName, RegistrationName} {
		policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s.refresh(policy)
		if policy.Status.TypeChecking != nil && len(policy.Status.TypeChecking.ExpressionWarnings) > 0 {
			s.Errorf("%s: %+v", name, policy.Status.TypeChecking)
		}
	}
}

func (s *suite) registrationIsTheManagers() {
	jane := s.as(0, "jane")
	validating := func() *admissionv1.ValidatingWebhookConfiguration {
		o := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: GuardsName}}
		s.refresh(o)
		return o
	}
	crd := definition(CRDName)
	s.refresh(crd)
	applied := &unstructured.Unstructured{}
	applied.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"))
	applied.SetName(GuardsName)
	applied.Object["webhooks"] = []any{map[string]any{"name": validating().Webhooks[0].Name, "failurePolicy": "Ignore"}}

	for name, tamper := range map[string]func() error{
		"deleted": func() error { return jane.Delete(s.Context(), registrationObjects()[0]) },
		"deleted, the mutating one": func() error {
			return jane.Delete(s.Context(), registrationObjects()[1])
		},
		"deleted with all others": func() error {
			return jane.DeleteAllOf(s.Context(), &admissionv1.ValidatingWebhookConfiguration{}, client.DryRunAll)
		},
		"emptied": func() error { return jane.Patch(s.Context(), registrationObjects()[0], merge(`{"webhooks":null}`)) },
		"made to fail open": func() error {
			o := validating()
			o.Webhooks[0].FailurePolicy = ptr.To(admissionv1.Ignore)
			return jane.Update(s.Context(), o)
		},
		"made to fail open by apply": func() error {
			return jane.Apply(s.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("jane"), client.ForceOwnership)
		},
		"given to an owner that is not there": func() error {
			return jane.Patch(s.Context(), registrationObjects()[1], merge(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"none","uid":"none"}]}}`))
		},
		"taken from its owner": func() error {
			return jane.Patch(s.Context(), registrationObjects()[0], merge(`{"metadata":{"ownerReferences":null}}`))
		},
		"made to look as if nothing had changed": func() error {
			o := validating()
			o.Webhooks = nil
			o.Generation++
			return jane.Update(s.Context(), o)
		},
	} {
		err := tamper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), RegistrationName) || !strings.Contains(err.Error(), "only the manager") {
			s.Errorf("%s: %v", name, errorText(err))
		}
	}
	for name, write := range map[string]func() error{
		"labels of others": func() error {
			return jane.Patch(s.Context(), registrationObjects()[0], merge(`{"metadata":{"labels":{"team":"a"}}}`))
		},
		"annotations of others": func() error {
			return jane.Patch(s.Context(), registrationObjects()[1], merge(`{"metadata":{"annotations":{"team":"a"}}}`))
		},
		"an unchanged object": func() error { return s.as(0, migratorUser).Update(s.Context(), validating()) },
		"the collector's delete": func() error {
			return s.as(0, collectorUser).Delete(s.Context(), registrationObjects()[0], client.DryRunAll)
		},
		"the collector's change of owners": func() error {
			return s.as(0, collectorUser).Patch(s.Context(), registrationObjects()[0], merge(`{"metadata":{"ownerReferences":null}}`), client.DryRunAll)
		},
		"a configuration of somebody else": func() error {
			o := validating()
			other := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "others"}}
			if err := jane.Create(s.Context(), other); err != nil {
				return err
			}
			other.Webhooks = []admissionv1.ValidatingWebhook{o.Webhooks[0]}
			other.Webhooks[0].FailurePolicy = ptr.To(admissionv1.Ignore)
			if err := jane.Update(s.Context(), other); err != nil {
				return err
			}
			return jane.Delete(s.Context(), other)
		},
		"the installed configuration": func() error {
			o := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ValidationName}}
			if err := jane.Patch(s.Context(), o, merge(`{"metadata":{"labels":{"release":"next"}}}`)); err != nil {
				return err
			}
			return jane.Delete(s.Context(), o, client.DryRunAll)
		},
		"the definition of FencedLease": func() error { return jane.Delete(s.Context(), crd, client.DryRunAll) },
	} {
		if err := write(); err != nil {
			s.Errorf("%s: %v", name, err)
		}
	}
}

func (s *suite) definitionsStay() {
	s.must(s.env.InstallGuardedCRD(s.Context(), widgets(apiextensionsv1.NamespaceScoped, "gadgets")))
	s.must(s.env.InstallGuardedCRD(s.Context(), widgets(apiextensionsv1.NamespaceScoped, "gizmos")))
	namespace := s.env.CreateNamespace(s)
	lease := s.createLease(env.NewLease(namespace, "keeper", func(l *v1alpha1.FencedLease) { l.Spec.Guards[0].Resources = []string{"gadgets/status"} }))
	s.createLease(env.NewLease(namespace, "trial", func(l *v1alpha1.FencedLease) {
		l.Spec.Enforcement, l.Spec.Guards[0].Resources = v1alpha1.EnforcementAudit, []string{"gizmos/*"}
	}))
	s.awaitReady(lease)
	jane := s.as(0, "jane")
	refused := func(what string, err error) {
		s.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "FencedLease "+namespace+"/keeper") || !strings.Contains(err.Error(), v1alpha1.DeletionOverrideKey) {
			s.Errorf("%s: %v", what, errorText(err))
		}
	}
	s.eventually("the policy", func() error {
		if err := jane.Delete(s.Context(), definition("gadgets.example.com"), client.DryRunAll); !apierrors.IsForbidden(err) {
			return errorText(err)
		}
		return nil
	})
	refused("by an administrator", jane.Delete(s.Context(), definition("gadgets.example.com")))
	refused("by the manager's own user", s.client.Delete(s.Context(), definition("gadgets.example.com")))
	refused("by the garbage collector", s.as(0, collectorUser).Delete(s.Context(), definition("gadgets.example.com")))
	if err := jane.DeleteAllOf(s.Context(), &apiextensionsv1.CustomResourceDefinition{}, client.DryRunAll); !apierrors.IsForbidden(err) {
		s.Errorf("together with all others: %v", errorText(err))
	}
	s.must(jane.Delete(s.Context(), definition("gizmos.example.com"))) // guarded in Audit only
	s.must(jane.Patch(s.Context(), definition("gadgets.example.com"), merge(`{"metadata":{"labels":{"release":"next"}}}`)))

	// A reason on the object lets it go.
	refused("with an empty reason", func() error {
		s.must(jane.Patch(s.Context(), definition("gadgets.example.com"), merge(`{"metadata":{"annotations":{"`+v1alpha1.DeletionOverrideKey+`":" "}}}`)))
		return jane.Delete(s.Context(), definition("gadgets.example.com"))
	}())
	s.must(jane.Patch(s.Context(), definition("gadgets.example.com"), merge(`{"metadata":{"annotations":{"`+v1alpha1.DeletionOverrideKey+`":"torn down"}}}`)))
	s.must(jane.Delete(s.Context(), definition("gadgets.example.com"), client.DryRunAll))
	s.must(jane.Patch(s.Context(), definition("gadgets.example.com"), merge(`{"metadata":{"annotations":{"`+v1alpha1.DeletionOverrideKey+`":null}}}`)))
	refused("without the reason again", jane.Delete(s.Context(), definition("gadgets.example.com")))

	s.terminatingDefinition(jane)

	// The namespace of the lease goes, and with it the protection.
	s.deleteLeases(namespace)
	s.deleteDefinition("gadgets.example.com")
}

// terminatingDefinition keeps a definition that somebody has let go of from going at once. Its deletion may be asked for again,
// by who gives no reason any more: nothing is left that could be protected.
func (s *suite) terminatingDefinition(jane client.Client) {
	const name, finalizer = "trinkets.example.com", "example.com/hold"
	s.must(s.env.InstallGuardedCRD(s.Context(), widgets(apiextensionsv1.NamespaceScoped, "trinkets")))
	namespace := s.env.CreateNamespace(s)
	s.awaitReady(s.createLease(env.NewLease(namespace, "dying", func(l *v1alpha1.FencedLease) { l.Spec.Guards[0].Resources = []string{"trinkets"} })))
	s.eventually("the policy", func() error {
		if err := jane.Delete(s.Context(), definition(name), client.DryRunAll); !apierrors.IsForbidden(err) {
			return errorText(err)
		}
		return nil
	})
	crd := definition(name)
	s.refresh(crd)
	finalizers, err := json.Marshal(append(crd.Finalizers, finalizer))
	s.must(err)
	patch := `{"metadata":{"finalizers":%s,"annotations":{"` + v1alpha1.DeletionOverrideKey + `":%s}}}`
	s.must(jane.Patch(s.Context(), definition(name), merge(fmt.Sprintf(patch, finalizers, `"torn down"`))))
	s.must(jane.Delete(s.Context(), definition(name)))
	s.must(jane.Patch(s.Context(), definition(name), merge(fmt.Sprintf(patch, finalizers, "null"))))
	for who, c := range map[string]client.Client{"by an administrator": jane, "by the garbage collector": s.as(0, collectorUser), "by the other API server": s.as(1, "jane")} {
		if err := c.Delete(s.Context(), definition(name)); err != nil {
			s.Errorf("a definition that is going already is deleted again %s: %v", who, err)
		}
	}
	s.refresh(crd)
	if crd.DeletionTimestamp.IsZero() || crd.Annotations[v1alpha1.DeletionOverrideKey] != "" {
		s.Errorf("the definition is not going, or still says why: %+v", crd.ObjectMeta)
	}
	s.must(jane.Patch(s.Context(), definition(name), merge(`{"metadata":{"finalizers":null}}`)))
	s.eventually("the definition is gone", func() error {
		if err := jane.Get(s.Context(), client.ObjectKeyFromObject(crd), crd); !apierrors.IsNotFound(err) {
			return errorText(err)
		}
		return nil
	})
	s.deleteLeases(namespace)
}

func (s *suite) breakGlass(r *running) {
	jane := s.as(0, "jane")
	// With the manager running the binding comes back.
	binding := func() *admissionv1.ValidatingAdmissionPolicyBinding {
		return &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: RegistrationName}}
	}
	s.must(jane.Delete(s.Context(), binding()))
	s.eventually("the binding is back", func() error { return jane.Get(s.Context(), client.ObjectKeyFromObject(binding()), binding()) })

	r.stop()
	s.must(jane.Delete(s.Context(), binding()))
	for _, o := range registrationObjects()[:2] {
		s.eventually("the registration goes", func() error { return client.IgnoreNotFound(jane.Delete(s.Context(), o)) })
	}

	// The next manager puts everything back.
	s.run()
	s.eventually("everything is back", func() error {
		for _, o := range registrationObjects() {
			if err := jane.Get(s.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
		}
		return nil
	})
}
