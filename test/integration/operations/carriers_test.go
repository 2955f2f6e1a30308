// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operations_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/test/env"
)

// credential returns the client of a service account whose bearer token the lease lists for its term.
func (s *story) credential(ctx context.Context) client.Client {
	GinkgoHelper()
	const account = "worker"
	config, err := cluster.ServiceAccount(ctx, s.namespace, account)
	Expect(err).NotTo(HaveOccurred())
	Expect(client.IgnoreAlreadyExists(admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: account}},
	}))).To(Succeed())
	parts := strings.Split(config.BearerToken, ".")
	Expect(parts).To(HaveLen(3))
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	Expect(err).NotTo(HaveOccurred())
	claims := struct {
		ID string `json:"jti"`
	}{}
	Expect(json.Unmarshal(payload, &claims)).To(Succeed())
	status := &s.lease.Status
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"generation": status.Generation, "term": status.Term, "holderIdentity": status.HolderIdentity,
		"credentials": []v1alpha1.Credential{{ID: v1alpha1.CredentialPrefix + claims.ID, Term: *status.Term}},
	}})
	Expect(err).NotTo(HaveOccurred())
	lease := s.lease.DeepCopy()
	Expect(admin.Status().Patch(ctx, lease, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
	c, err := env.Client(config)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		return c.List(ctx, &v1alpha1.FencedLeaseList{}, client.InNamespace(s.namespace))
	}).Should(Succeed())
	return c
}

var _ = Describe("A term credential", func() {
	for name, w := range writes() {
		It("records the operation that the annotation names beside it by "+name, func(ctx SpecContext) {
			s := begin(ctx)
			c := s.credential(ctx)
			object := newName()
			if !w.creates {
				object = s.create(ctx)
			}
			Expect(w.do(ctx, client.NewDryRunClient(c), s, object, s.token("import-17"))).To(Succeed(), "dry-run")
			Expect(w.do(ctx, c, s, object, s.token("import-17"))).To(Succeed())
			Expect(s.ids(ctx, object)).To(Equal([]string{"import-17"}))
			Expect(s.get(ctx, object).GetAnnotations()).To(HaveKeyWithValue(s.key(), s.token("import-17")))
			if w.creates {
				return
			}
			By("refusing the operation once another one was written")
			Expect(w.do(ctx, c, s, object, s.token("import-18"))).To(Succeed())
			before := s.get(ctx, object)
			Expect(w.do(ctx, c, s, object, s.token("import-17"))).To(beFenced("AlreadyApplied", "import-17="))
			Expect(w.do(ctx, client.NewDryRunClient(c), s, object, s.token("import-17"))).To(beFenced("AlreadyApplied", "import-17="), "dry-run")
			Expect(s.get(ctx, object)).To(Equal(before))
		})
	}

	It("records nothing by itself, and changes no record", func(ctx SpecContext) {
		s := begin(ctx)
		c := s.credential(ctx)
		object := s.create(ctx)
		Expect(mergePatch(ctx, c, s, object, s.token("import-17"))).To(Succeed())
		stored := s.records(ctx, object)
		Expect(c.Patch(ctx, env.BareReport(s.namespace, object), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":"third"}}`)))).To(Succeed())
		Expect(s.value(ctx, object)).To(Equal("third"))
		Expect(s.records(ctx, object)).To(Equal(stored))
		forged := "import-18=1"
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.OperationsKey(s.lease.Name), forged)
		Expect(c.Patch(ctx, env.BareReport(s.namespace, object), client.RawPatch(types.MergePatchType, []byte(patch)))).To(beRefusedByPolicy())
	})

	// A limit: the annotation is as it is stored, and the credential presents the term without an operation.
	It("does not tell the last write once more from another one, unless the token is written otherwise or the write is conditioned", func(ctx SpecContext) {
		s := begin(ctx)
		c := s.credential(ctx)
		object := s.create(ctx)
		patch := func(text, version string) error {
			body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q},"resourceVersion":%q},"spec":{"value":"second"}}`, s.key(), text, version)
			return c.Patch(ctx, env.BareReport(s.namespace, object), client.RawPatch(types.MergePatchType, []byte(body)))
		}
		version := s.get(ctx, object).GetResourceVersion()
		Expect(patch(s.token("import-17"), version)).To(Succeed())
		Expect(patch(s.token("import-17"), version)).To(Satisfy(apierrors.IsConflict))
		withoutTerm := strconv.FormatInt(*s.lease.Status.Generation, 10) + "/import-17"
		Expect(mergePatch(ctx, c, s, object, withoutTerm)).To(beFenced("AlreadyApplied", "import-17="))
		Expect(mergePatch(ctx, c, s, object, s.token("import-17"))).To(Succeed(), "it is a write of the term like any other")
		Expect(s.ids(ctx, object)).To(Equal([]string{"import-17"}), "and is not recorded again")
	})

	It("of an ended term is told that it is stale, also for an operation that is recorded", func(ctx SpecContext) {
		s := begin(ctx)
		c := s.credential(ctx)
		object := s.create(ctx)
		Expect(mergePatch(ctx, c, s, object, s.token("import-17"))).To(Succeed())
		ended := s.token("import-18")
		take(ctx, s.lease, "b")
		Expect(mergePatch(ctx, c, s, object, ended)).To(beFenced("StaleToken", ""))
		Expect(mergePatch(ctx, c, s, object, "")).To(beFenced("StaleToken", ""))
		Expect(s.ids(ctx, object)).To(Equal([]string{"import-17"}))
	})
})

// observer keeps the warnings that a client gets.
type observer struct {
	mu       sync.Mutex
	warnings []string
}

func (o *observer) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.warnings = append(o.warnings, text)
}

func (o *observer) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.warnings)
}

var _ = Describe("A lease in Audit", func() {
	audit := func(l *v1alpha1.FencedLease) { l.Spec.Enforcement = v1alpha1.EnforcementAudit }

	for _, byRequest := range []bool{false, true} {
		It("records operations by "+map[bool]string{false: "annotation", true: "request"}[byRequest]+", and warns of a repetition that it admits", func(ctx SpecContext) {
			s := begin(ctx, audit)
			object := s.create(ctx)
			seen := &observer{}
			write := func(id, value string) error {
				config := cluster.Config()
				config.WarningHandlerWithContext = seen
				annotations := map[string]string{}
				if byRequest {
					config.Impersonate = rest.ImpersonationConfig{
						UserName: "worker", Groups: []string{"system:masters"}, Extra: map[string][]string{s.key(): {s.token(id)}},
					}
				} else {
					annotations[s.key()] = s.token(id)
				}
				c, err := env.Client(config)
				Expect(err).NotTo(HaveOccurred())
				patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": map[string]any{"value": value}})
				Expect(err).NotTo(HaveOccurred())
				return c.Patch(ctx, env.BareReport(s.namespace, object), client.RawPatch(types.MergePatchType, patch))
			}
			Expect(write("import-17", "second")).To(Succeed())
			Expect(write("import-18", "third")).To(Succeed())
			Expect(s.ids(ctx, object)).To(Equal([]string{"import-18", "import-17"}))
			stored := s.records(ctx, object)
			Expect(seen.all()).To(BeEmpty())
			Expect(write("import-17", "fourth")).To(Succeed())
			Expect(seen.all()).To(ContainElement(ContainSubstring("would be refused (AlreadyApplied) if not in Audit")))
			Expect(s.value(ctx, object)).To(Equal("fourth"))
			Expect(s.records(ctx, object)).To(Equal(stored), "it is recorded once")
		})
	}

	It("leaves its own record unprotected, and that of another lease as it is", func(ctx SpecContext) {
		s := begin(ctx, audit)
		enforcing := &story{namespace: s.namespace, lease: s.another(ctx, "report-writer-of-record")}
		object := s.report(newName(), "first", "")
		object.SetAnnotations(map[string]string{s.key(): s.token("import-17"), enforcing.key(): enforcing.token("import-17")})
		Expect(admin.Create(ctx, object)).To(Succeed())
		forge := func(story *story) error {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:"forged=1"}}}`, enforcing.key(), enforcing.nonce(), v1alpha1.OperationsKey(story.lease.Name))
			return admin.Patch(ctx, env.BareReport(s.namespace, object.GetName()), client.RawPatch(types.MergePatchType, []byte(patch)))
		}
		refusal, ok := fenced.Cause(forge(enforcing))
		Expect(ok).To(BeTrue())
		Expect(refusal.Type).To(Equal(fenced.RecordTampered))
		Expect(refusal.Lease.Name).To(Equal(enforcing.lease.Name))
		Expect(forge(s)).To(Succeed())
		Expect(s.records(ctx, object.GetName())).To(Equal("forged=1"))
		Expect(enforcing.ids(ctx, object.GetName())).To(Equal([]string{"import-17"}))

		By("being protected again when Audit ends, by what is stored then")
		Expect(admin.Patch(ctx, s.lease.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"enforcement":"Enforce"}}`)))).To(Succeed())
		again := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:"forged=2"}}}`, enforcing.key(), enforcing.nonce(), v1alpha1.OperationsKey(s.lease.Name))
		Eventually(func() bool {
			refusal, ok := fenced.Cause(admin.Patch(ctx, env.BareReport(s.namespace, object.GetName()), client.RawPatch(types.MergePatchType, []byte(again)), client.DryRunAll))
			return ok && refusal.Type == fenced.RecordTampered && refusal.Lease.Name == s.lease.Name
		}).Should(BeTrue())
	})
})
