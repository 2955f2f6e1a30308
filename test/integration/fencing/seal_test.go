// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fencing_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// bySeal makes a lease hand over by seal.
func bySeal(l *v1alpha1.FencedLease) { l.Spec.Handover = v1alpha1.HandoverSeal }

func deletingLate(l *v1alpha1.FencedLease) { l.Spec.LateCreates = v1alpha1.LateCreatesDelete }

// takeOverSealed lets B take over and waits for the seal. B itself writes nothing.
func (s *story) takeOverSealed(ctx context.Context) {
	GinkgoHelper()
	s.takeOver(ctx)
	s.awaitSealed(ctx)
}

// awaitSealed waits until the lease's present term is sealed.
func (s *story) awaitSealed(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(s.lease), s.lease)).To(Succeed())
		g.Expect(s.lease.Status.Seal).To(Equal(v1alpha1.SealRequired))
		g.Expect(*s.lease.Status.SealedGeneration).To(Equal(*s.lease.Status.Generation), "conditions: %+v", s.lease.Status.Conditions)
	}).Should(Succeed())
}

// holdStamps holds up the stamps of the story's objects, and what else the manager writes to them.
func (s *story) holdStamps() *env.Hold {
	return gap.Hold(func(r *admissionv1.AdmissionRequest) bool {
		return r.Namespace == s.namespace && strings.HasPrefix(r.UserInfo.Username, "system:serviceaccount:"+product.Namespace+":")
	})
}

func (s *story) markOf(ctx context.Context, name string) string {
	GinkgoHelper()
	return s.get(ctx, name).GetAnnotations()[s.key()]
}

func (s *story) condition(ctx context.Context, conditionType string) func() *metav1.Condition {
	return func() *metav1.Condition {
		GinkgoHelper()
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(s.lease), s.lease)).To(Succeed())
		return meta.FindStatusCondition(s.lease.Status.Conditions, conditionType)
	}
}

func haveReason(status metav1.ConditionStatus, reason string) OmegaMatcher {
	return And(Not(BeNil()), HaveField("Status", status), HaveField("Reason", reason))
}

// In these stories A's write is checked and admitted while A leads, and pauses before its commit, while B takes over by a
// seal and writes nothing: the window of a lazy handover is closed.
var _ = Describe("A write that pauses between its check and its commit while B takes over by a seal", func() {
	for _, w := range writes() {
		if w.creates {
			continue
		}
		for _, byRequest := range []bool{false, true} {
			if !byRequest && w.byRequestOnly {
				continue
			}
			how := "by annotation"
			if byRequest {
				how = "by request"
			}
			It(w.name+", token "+how+", is refused though B has written nothing", func(ctx SpecContext) {
				s := begin(ctx, bySeal)
				name := s.create(ctx, s.a)
				c, annotation := admin, fresh(s.a)
				if byRequest {
					c, annotation = s.carrying(s.a), ""
				}
				if w.name == "deletecollection" {
					label(ctx, s, name)
				}
				before := s.get(ctx, name)
				err := pause(ctx, name, func(ctx context.Context) error { return w.do(ctx, c, s, name, annotation) }, func() { s.takeOverSealed(ctx) })
				Expect(err).To(beStale())
				after := s.get(ctx, name)
				Expect(after.GetAnnotations()[s.key()]).To(Equal(s.b))
				Expect([]any{after.Object["spec"], after.Object["status"]}).To(Equal([]any{before.Object["spec"], before.Object["status"]}))
				Expect(after.GetDeletionTimestamp()).To(BeNil())
			})
		}
	}

	It("is refused also if the lease hands over lazily from B on: a Seal term is always ended by a seal", func(ctx SpecContext) {
		s := begin(ctx, bySeal)
		name := s.create(ctx, s.a)
		s.setHandover(ctx, v1alpha1.HandoverLazy)
		Expect(pause(ctx, name, func(ctx context.Context) error {
			return writes()[3].do(ctx, admin, s, name, fresh(s.a))
		}, func() { s.takeOverSealed(ctx) })).To(beStale())
		Expect(s.lease.Status.Handover).To(Equal(v1alpha1.HandoverLazy))

		By("needing no seal from the next term on, and stamping nothing")
		s.takeOver(ctx)
		Expect(s.lease.Status.Seal).To(Equal(v1alpha1.SealNotRequired))
		Eventually(s.condition(ctx, v1alpha1.ConditionSealed)).Should(haveReason(metav1.ConditionTrue, v1alpha1.ReasonSealNotRequired))
		Expect(s.markOf(ctx, name)).NotTo(HavePrefix(s.b))
	})
})

func (s *story) setHandover(ctx context.Context, handover v1alpha1.Handover) {
	GinkgoHelper()
	Expect(admin.Patch(ctx, s.lease, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"handover":%q}}`, handover)))).To(Succeed())
	Expect(product.AwaitCondition(ctx, admin, s.lease, v1alpha1.ConditionReady, metav1.ConditionTrue)).To(Succeed())
}

var _ = Describe("A late create", func() {
	// late has a create of A admitted before B takes over by a seal, and committed after it.
	late := func(ctx context.Context, s *story, create func(context.Context, string) error) string {
		GinkgoHelper()
		name := newName()
		Expect(pause(ctx, name, func(ctx context.Context) error { return create(ctx, name) }, func() { s.takeOverSealed(ctx) })).To(Succeed())
		return name
	}
	for _, w := range writes() {
		if !w.creates {
			continue
		}
		It("by "+w.name+" is reported exactly, and carries the current term's mark", func(ctx SpecContext) {
			s := begin(ctx, bySeal)
			old := s.create(ctx, s.a)
			name := late(ctx, s, func(ctx context.Context, name string) error { return w.do(ctx, admin, s, name, fresh(s.a)) })
			Eventually(s.condition(ctx, v1alpha1.ConditionLateCreate)).Should(And(
				haveReason(metav1.ConditionTrue, v1alpha1.ReasonLateCreateReported),
				HaveField("Message", ContainSubstring(s.namespace+"/"+name)),
			))
			Eventually(func() string { return s.markOf(ctx, name) }).Should(Equal(s.b))
			Expect(s.markOf(ctx, old)).To(Equal(s.b))

			By("refusing an update of it under the older generation")
			Expect(writes()[3].do(ctx, admin, s, name, fresh(s.a))).To(beStale())

			By("forgetting it once a later term is sealed without one")
			s.takeOverSealed(ctx)
			Eventually(s.condition(ctx, v1alpha1.ConditionLateCreate)).Should(haveReason(metav1.ConditionFalse, v1alpha1.ReasonNoLateCreate))
		})
	}

	It("is deleted where the lease says so, and nothing else is", func(ctx SpecContext) {
		s := begin(ctx, bySeal, deletingLate)
		old := s.create(ctx, s.a)
		name := late(ctx, s, func(ctx context.Context, name string) error { return writes()[0].do(ctx, admin, s, name, fresh(s.a)) })
		// B's own creates, and one without a token by somebody who may say why.
		own := s.create(ctx, s.b)
		Eventually(func() bool {
			return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, env.BareReport(s.namespace, name)))
		}).Should(BeTrue())
		Eventually(s.condition(ctx, v1alpha1.ConditionLateCreate)).Should(And(
			haveReason(metav1.ConditionTrue, v1alpha1.ReasonLateCreateDeleted), HaveField("Message", ContainSubstring(name))))
		for _, other := range []string{old, own} {
			Expect(s.get(ctx, other).GetDeletionTimestamp()).To(BeNil())
		}
	})

	It("is deleted also if it appears while the seal is under way, in which the holder may not write yet", func(ctx SpecContext) {
		s := begin(ctx, bySeal, deletingLate)
		old := s.create(ctx, s.a)
		name := newName()
		var stamping *env.Hold
		err := pause(ctx, name, func(ctx context.Context) error { return writes()[0].do(ctx, admin, s, name, fresh(s.a)) }, func() {
			stamping = gap.Hold(func(r *admissionv1.AdmissionRequest) bool { return r.Name == old })
			DeferCleanup(stamping.Release)
			s.takeOver(ctx)
			Eventually(stamping.Entered()).Should(Receive())
		})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() bool {
			return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, env.BareReport(s.namespace, name)))
		}).Should(BeTrue())
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(s.lease), s.lease)).To(Succeed())
		Expect(*s.lease.Status.SealedGeneration).To(BeNumerically("<", *s.lease.Status.Generation))
		stamping.Release()
		s.awaitSealed(ctx)
		Expect(s.markOf(ctx, old)).To(Equal(s.b))
	})

	It("with a finalizer is deleted as far as its finalizer lets it, and keeps it", func(ctx SpecContext) {
		s := begin(ctx, bySeal, deletingLate)
		name := late(ctx, s, func(ctx context.Context, name string) error {
			o := s.report(name, fresh(s.a))
			o.SetFinalizers([]string{"example.com/held"})
			return admin.Create(ctx, o)
		})
		Eventually(func() *metav1.Time { return s.get(ctx, name).GetDeletionTimestamp() }).ShouldNot(BeNil())
		Expect(s.get(ctx, name).GetFinalizers()).To(Equal([]string{"example.com/held"}))
		Expect(s.carrying(s.b).Patch(ctx, env.BareReport(s.namespace, name), client.RawPatch("application/merge-patch+json",
			fmt.Appendf(nil, `{"metadata":{"finalizers":null,"uid":%q,"resourceVersion":%q}}`, s.get(ctx, name).GetUID(), s.get(ctx, name).GetResourceVersion())))).To(Succeed())
	})
})

var _ = Describe("A stamp", func() {
	It("of the manager is nothing but a stamp: with another change it is refused as any write without a token", func(ctx SpecContext) {
		s := begin(ctx, bySeal)
		name := s.create(ctx, s.a)
		manager, err := product.AsManager(ctx, cluster)
		Expect(err).NotTo(HaveOccurred())
		stamp := client.FieldOwner(seal.FieldManager(s.lease.Name, s.a))
		Expect(manager.Patch(ctx, env.BareReport(s.namespace, name), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"value":"of the manager"}}`)), stamp)).
			To(beFenced("MissingToken"))
		Expect(admin.Patch(ctx, env.BareReport(s.namespace, name), client.RawPatch("application/merge-patch+json", []byte(`{}`)), stamp)).
			To(beFenced("MissingToken"), "of somebody else")
		Expect(s.value(ctx, name)).To(Equal("first"))
	})

	It("makes nobody the owner of the mark: two appliers go on without a conflict (F-19)", func(ctx SpecContext) {
		s := begin(ctx, bySeal)
		name := newName()
		apply := func(token string, owner client.FieldOwner, field, value string) error {
			o := env.BareReport(s.namespace, name)
			if field == "value" {
				o.Object["spec"] = map[string]any{"value": value}
			} else {
				o.SetLabels(map[string]string{field: value})
			}
			return s.carrying(token).Apply(ctx, client.ApplyConfigurationFromUnstructured(o), owner)
		}
		Expect(apply(s.a, "one", "value", "1")).To(Succeed())
		Expect(apply(s.a, "two", "label", "1")).To(Succeed())
		s.takeOverSealed(ctx)
		Expect(s.markOf(ctx, name)).To(Equal(s.b))
		Expect(apply(s.b, "one", "value", "2")).To(Succeed())
		Expect(apply(s.b, "two", "label", "2")).To(Succeed())
		s.takeOverSealed(ctx)
		Expect(apply(s.b, "two", "label", "3")).To(Succeed())
		Expect(apply(s.b, "one", "value", "3")).To(Succeed())
		for _, field := range s.get(ctx, name).GetManagedFields() {
			Expect(field.FieldsV1.GetRawString()).NotTo(ContainSubstring(v1alpha1.TokenPrefix), field.Manager)
			Expect(field.Manager).NotTo(HavePrefix(v1alpha1.TokenPrefix))
		}
	})

	It("removes no finalizer of an object that is being deleted", func(ctx SpecContext) {
		s := begin(ctx, bySeal)
		name := s.create(ctx, s.a, func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/held"}) })
		Expect(s.carrying(s.a).Delete(ctx, env.BareReport(s.namespace, name))).To(Succeed())
		s.takeOverSealed(ctx)
		o := s.get(ctx, name)
		Expect(o.GetDeletionTimestamp()).NotTo(BeNil())
		Expect(o.GetFinalizers()).To(Equal([]string{"example.com/held"}))
		Expect(o.GetAnnotations()[s.key()]).To(Equal(s.b))
		Expect(s.carrying(s.a).Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))).To(beStale())
	})

	It("is committed however often somebody else writes the object in between", func(ctx SpecContext) {
		s := begin(ctx, bySeal)
		names := make([]string, 20)
		for i := range names {
			names[i] = s.create(ctx, s.a)
		}
		s.takeOver(ctx)
		// B does not wait. Its writes to status move the revision, and never the mark.
		storming, stop := context.WithCancel(ctx)
		c := s.carrying(s.b)
		var storm sync.WaitGroup
		for worker := range 4 {
			storm.Go(func() {
				for i := 0; storming.Err() == nil; i++ {
					patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"status":{"phase":"%d-%d"}}`, worker, i))
					_ = c.Status().Patch(storming, env.BareReport(s.namespace, names[i%len(names)]), patch)
				}
			})
		}
		defer storm.Wait()
		defer stop()
		s.awaitSealed(ctx)
		for _, name := range names {
			Expect(s.markOf(ctx, name)).To(Equal(s.b))
		}
	})

	It("of a term that ends in the middle of its seal gives way to those of the next one", func(ctx SpecContext) {
		s := begin(ctx, bySeal)
		names := make([]string, 60)
		for i := range names {
			names[i] = s.create(ctx, s.a)
		}
		// The seal of B waits with its first stamp, and so with its end.
		hold := gap.Hold(func(r *admissionv1.AdmissionRequest) bool {
			return r.Namespace == s.namespace && strings.HasPrefix(r.UserInfo.Username, "system:serviceaccount:"+product.Namespace+":")
		})
		defer hold.Release()
		s.takeOver(ctx)
		ofB := s.b
		Eventually(hold.Entered()).Should(Receive())
		Eventually(s.condition(ctx, v1alpha1.ConditionSealed)).Should(haveReason(metav1.ConditionFalse, v1alpha1.ReasonSealPending))
		s.takeOverSealed(ctx)
		Expect(s.b).NotTo(Equal(ofB))
		hold.Release()
		for _, name := range names {
			Expect(s.markOf(ctx, name)).To(Equal(s.b))
		}
		Expect(ptr.Deref(s.lease.Status.SealedGeneration, 0)).To(BeNumerically(">", generationOf(ofB)))
	})
})

func generationOf(token string) int64 {
	GinkgoHelper()
	digits, _, _ := strings.Cut(token, ".")
	generation, err := strconv.ParseInt(digits, 10, 64)
	Expect(err).NotTo(HaveOccurred())
	return generation
}
