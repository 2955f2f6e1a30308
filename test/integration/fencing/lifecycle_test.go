// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fencing_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

var _ = Describe("The life of a lease", func() {
	gone := func(ctx context.Context, o client.Object) {
		GinkgoHelper()
		Eventually(func() bool {
			return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(o), o))
		}).Should(BeTrue())
	}

	It("never reuses a generation when it is deleted and created anew", func(ctx SpecContext) {
		s, _ := tell(ctx, 1)
		before := *s.lease.Status.Generation
		for range 3 {
			Expect(admin.Delete(ctx, s.lease)).To(Succeed())
			s.lease = env.NewLease(s.namespace, s.lease.Name)
			Expect(product.CreateLease(ctx, admin, s.lease)).To(Succeed())
			s.takeOver(ctx)
			Expect(*s.lease.Status.Generation).To(BeNumerically(">", before))
			before = *s.lease.Status.Generation
		}
		Expect(writes()[0].do(ctx, admin, s, newName(), fresh(s.a))).To(beFenced("StaleToken"))
	})

	It("starts above the marks that guarded objects carry already", func(ctx SpecContext) {
		s := &story{namespace: cluster.CreateNamespace(GinkgoT()), lease: env.NewLease("", "report-writer")}
		name := newName()
		Expect(admin.Create(ctx, s.report(name, "700000000000.aaaaaaaa/1"))).To(Succeed())
		s.lease = env.NewLease(s.namespace, "report-writer")
		Expect(product.CreateLease(ctx, admin, s.lease)).To(Succeed())
		s.takeOver(ctx)
		Expect(*s.lease.Status.Generation).To(BeEquivalentTo(700000000001))
		Expect(writes()[3].do(ctx, admin, s, name, "700000000000.aaaaaaaa/2")).To(beFenced("StaleToken"))
		Expect(writes()[3].do(ctx, admin, s, name, fresh(s.b))).To(Succeed())
	})

	It("raises the floor when a token shows a generation above the lease's", func(ctx SpecContext) {
		s, names := tell(ctx, 1)
		above := *s.lease.Status.Generation + 5000
		future := s.mergePatch(fmtToken(above), `"spec":{"value":"x"}`)
		Expect(admin.Patch(ctx, env.BareReport(s.namespace, names[0]), client.RawPatch("application/merge-patch+json", future))).To(beFenced("FutureToken"))
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(s.lease), s.lease)).To(Succeed())
			g.Expect(ptr.Deref(s.lease.Status.GenerationFloor, 0)).To(BeNumerically(">=", above))
		}).Should(Succeed())
		Expect(product.AwaitCondition(ctx, admin, s.lease, v1alpha1.ConditionGenerationBehind, metav1.ConditionTrue)).To(Succeed())
		s.takeOver(ctx)
		Expect(*s.lease.Status.Generation).To(BeNumerically(">", above))
		Expect(writes()[3].do(ctx, admin, s, names[0], fresh(s.b))).To(Succeed())
	})

	It("lets a namespace with guarded objects go", func(ctx SpecContext) {
		s, _ := tell(ctx, 3)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
		Expect(admin.Delete(ctx, namespace)).To(Succeed())
		gone(ctx, namespace)
	})

	It("lets the garbage collector collect and orphan guarded objects", func(ctx SpecContext) {
		s, names := tell(ctx, 1)
		ownerReport := s.get(ctx, names[0])
		child := s.create(ctx, s.b, func(o *unstructured.Unstructured) {
			o.SetOwnerReferences([]metav1.OwnerReference{{
				APIVersion: ownerReport.GetAPIVersion(), Kind: ownerReport.GetKind(), Name: ownerReport.GetName(), UID: ownerReport.GetUID(),
			}})
		})
		Expect(s.carrying(s.b).Delete(ctx, ownerReport, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		gone(ctx, ownerReport)
		gone(ctx, env.BareReport(s.namespace, child))

		second := s.create(ctx, s.b)
		ownerReport = s.get(ctx, second)
		child = s.create(ctx, s.b, func(o *unstructured.Unstructured) {
			o.SetOwnerReferences([]metav1.OwnerReference{{
				APIVersion: ownerReport.GetAPIVersion(), Kind: ownerReport.GetKind(), Name: ownerReport.GetName(), UID: ownerReport.GetUID(),
			}})
		})
		Expect(s.carrying(s.b).Delete(ctx, ownerReport, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		gone(ctx, ownerReport)
		Expect(s.get(ctx, child).GetOwnerReferences()).To(BeEmpty())
	})

	It("guards finalizers of an object that is being deleted (redhat-cop/namespace-configuration-operator#89)", func(ctx SpecContext) {
		s := begin(ctx)
		name := s.create(ctx, s.a, func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/one", "example.com/two"}) })
		s.takeOver(ctx)
		Expect(s.carrying(s.b).Delete(ctx, env.BareReport(s.namespace, name))).To(Succeed())
		finalizers := func(token string, left string) error {
			return admin.Patch(ctx, env.BareReport(s.namespace, name), client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"finalizers":[`+left+`],"annotations":{"`+s.key()+`":"`+token+`"}}}`)))
		}
		withoutToken := func() error {
			return admin.Patch(ctx, env.BareReport(s.namespace, name), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":[]}}`)))
		}
		Expect(finalizers(fresh(s.a), `"example.com/one"`)).To(beStale())
		Expect(finalizers(fresh(s.b), `"example.com/one"`)).To(Succeed())
		Expect(finalizers(fresh(s.a), "")).To(beStale())
		err := withoutToken()
		Expect(err).To(beFenced("FinalDelete"))
		Expect(err.Error()).To(ContainSubstring("Present the token of the held term"))
		Expect(finalizers(fresh(s.b), "")).To(Succeed())
		gone(ctx, env.BareReport(s.namespace, name))
	})

	It("ends the protection when it is deleted", func(ctx SpecContext) {
		s, names := tell(ctx, 1)
		Expect(admin.Delete(ctx, s.lease)).To(Succeed())
		Eventually(func() error { return writes()[3].do(ctx, admin, s, names[0], "") }).Should(Succeed())
	})

	It("applies changes of its spec at once", func(ctx SpecContext) {
		s, names := tell(ctx, 1)
		Expect(writes()[3].do(ctx, admin, s, names[0], "")).To(beFenced("MissingToken"))
		patch := `{"spec":{"guards":[{"apiGroups":["example.com"],"resources":["reports/*"],"subjects":[{"kind":"ServiceAccount","name":"worker"}]}]}}`
		Expect(admin.Patch(ctx, s.lease, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
		Expect(writes()[3].do(ctx, admin, s, names[0], "")).To(Succeed())
		Expect(writes()[3].do(ctx, admin, s, names[0], fresh(s.a))).To(beStale())
	})
})

var _ = Describe("Audit", func() {
	It("admits everything, warns, and protects no marks", func(ctx SpecContext) {
		s, names := tell(ctx, 1, func(l *v1alpha1.FencedLease) { l.Spec.Enforcement = v1alpha1.EnforcementAudit })
		warnings := &warningRecorder{}
		config := cluster.Config()
		config.WarningHandlerWithContext = warnings
		c, err := env.Client(config)
		Expect(err).NotTo(HaveOccurred())
		Expect(writes()[3].do(ctx, c, s, names[0], fresh(s.a))).To(Succeed())
		Expect(warnings.all()).To(ContainElement(ContainSubstring("would be refused (StaleToken) if not in Audit")))
		read := s.get(ctx, names[0])
		read.SetAnnotations(nil)
		Expect(admin.Update(ctx, read)).To(Succeed())
	})
})

var _ = Describe("Break-glass", func() {
	user := func(ctx context.Context, s *story, name string, verbs ...string) client.Client {
		GinkgoHelper()
		rules := []rbacv1.PolicyRule{{APIGroups: []string{env.GuardedGroup}, Resources: []string{"*"}, Verbs: []string{"*"}}}
		if len(verbs) > 0 {
			rules = append(rules, rbacv1.PolicyRule{
				APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases"}, ResourceNames: []string{s.lease.Name}, Verbs: verbs,
			})
		}
		Expect(admin.Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Rules: rules})).To(Succeed())
		Expect(admin.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		})).To(Succeed())
		config, err := cluster.AddUser(name)
		Expect(err).NotTo(HaveOccurred())
		c, err := env.Client(config)
		Expect(err).NotTo(HaveOccurred())
		return c
	}
	patch := func(ctx context.Context, c client.Client, s *story, name, annotations string) error {
		return c.Patch(ctx, env.BareReport(s.namespace, name), client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"annotations":{`+annotations+`}},"spec":{"value":"by hand"}}`)))
	}
	const reason = `"override.fencedlease.io/report-writer":"the disk is full"`

	It("lets a write without a token pass only with the verb and a reason", func(ctx SpecContext) {
		s, names := tell(ctx, 1)
		may := user(ctx, s, "operator-may", v1alpha1.VerbBypass)
		mayNot := user(ctx, s, "operator-may-not")
		Expect(patch(ctx, mayNot, s, names[0], reason)).To(beFenced("MissingToken"))
		Expect(patch(ctx, may, s, names[0], "")).To(beFenced("MissingToken"))
		Eventually(func() error { return patch(ctx, may, s, names[0], reason) }).Should(Succeed())
		Expect(s.value(ctx, names[0])).To(Equal("by hand"))
		Expect(patch(ctx, may, s, names[0], reason)).To(beFenced("MissingToken"), "a reason that is already there was not given by this write")
		Eventually(func(g Gomega) {
			out, err := cluster.Kubectl(ctx, "get", "events", "-n", s.namespace, "-o", "jsonpath={.items[*].message}")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(ContainSubstring("operator-may wrote reports.example.com " + s.namespace + "/" + names[0] + " without a token: the disk is full"))
		}).Should(Succeed())
	})

	It("helps neither a stale token nor the removal of a mark", func(ctx SpecContext) {
		s, _ := tell(ctx, 0)
		name := s.create(ctx, s.b)
		Expect(patch(ctx, admin, s, name, reason+`,"`+s.key()+`":"`+s.a+`/9"`)).To(beStale())
		Expect(patch(ctx, admin, s, name, reason+`,"`+s.key()+`":null`)).To(beRefusedByPolicy())
		Expect(s.value(ctx, name)).To(Equal("first"))
	})
})

var _ = Describe("Carriers", func() {
	It("take names of every form, and refuse two values (kubernetes/kubernetes#30881)", func(ctx SpecContext) {
		namespace := cluster.CreateNamespace(GinkgoT())
		for _, name := range []string{"a", "with.dots-and-dashes.1", strings.Repeat("n", 63)} {
			s := &story{namespace: namespace, lease: env.NewLease(namespace, name)}
			Expect(product.CreateLease(ctx, admin, s.lease)).To(Succeed())
			s.takeOver(ctx)
			Expect(s.carrying(s.b).Create(ctx, s.report(newName(), ""))).To(Succeed(), name)
			config := cluster.Config()
			config.Impersonate = rest.ImpersonationConfig{
				UserName: "worker", Groups: []string{"system:masters"}, Extra: map[string][]string{s.key(): {s.b, s.b}},
			}
			c, err := env.Client(config)
			Expect(err).NotTo(HaveOccurred())
			Expect(c.Create(ctx, s.report(newName(), ""))).To(Satisfy(apierrors.IsForbidden), name)
			Expect(admin.Delete(ctx, s.lease)).To(Succeed())
		}
	})

	It("include plain kubectl (kubernetes/kubernetes#134378)", func(ctx SpecContext) {
		s, names := tell(ctx, 2)
		as := func(token string, args ...string) error {
			_, err := cluster.Kubectl(ctx, append([]string{
				"--as=worker", "--as-group=system:masters", "--as-user-extra=" + s.key() + "=" + token, "-n", s.namespace,
			}, args...)...)
			return err
		}
		for _, args := range [][]string{
			{"patch", "report", names[0], "--type=merge", "-p", `{"spec":{"value":"k"}}`},
			{"scale", "report", names[0], "--replicas=2"},
			{"annotate", "report", names[0], "--overwrite", "note=" + newName()},
			{"delete", "report", names[0]},
		} {
			Expect(as(s.a, args...)).To(MatchError(Or(ContainSubstring("is stale"), ContainSubstring("must not fall"))), strings.Join(args, " "))
			Expect(as(s.b, args...)).To(Succeed(), strings.Join(args, " "))
		}
	})
})
