// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fencing_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// In these stories A's write is checked and admitted while A leads, and pauses before its commit, in a slow second
// webhook. What happens in the pause decides.
var _ = Describe("A write that pauses between its check and its commit", func() {
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
			It(w.name+", token "+how+", is refused when B has taken over and written", func(ctx SpecContext) {
				s := begin(ctx)
				name := s.create(ctx, s.a)
				c, annotation := admin, fresh(s.a)
				if byRequest {
					c, annotation = s.carrying(s.a), ""
				}
				if w.name == "deletecollection" {
					label(ctx, s, name)
				}
				err := pause(ctx, name, func(ctx context.Context) error { return w.do(ctx, c, s, name, annotation) }, func() {
					s.takeOver(ctx)
					Expect(admin.Patch(ctx, empty(s.namespace, name),
						client.RawPatch("application/merge-patch+json", s.mergePatch(fresh(s.b), `"spec":{"value":"of B"}`)))).To(Succeed())
				})
				Expect(err).To(beStale())
				Expect(s.value(ctx, name)).To(Equal("of B"))
			})
		}
	}

	It("is refused when B's first write was to status, which moves no mark but the revision", func(ctx SpecContext) {
		s := begin(ctx)
		name := s.create(ctx, s.a)
		err := pause(ctx, name, func(ctx context.Context) error {
			return writes()[3].do(ctx, admin, s, name, fresh(s.a))
		}, func() {
			s.takeOver(ctx)
			Expect(s.carrying(s.b).Status().Patch(ctx, empty(s.namespace, name),
				client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"of B"}}`)))).To(Succeed())
		})
		Expect(err).To(beFenced("StaleToken"))
		Expect(s.value(ctx, name)).To(Equal("first"))
	})

	It("commits when B has taken over but not yet written: the stated window of a lazy handover", func(ctx SpecContext) {
		s := begin(ctx)
		name := s.create(ctx, s.a)
		Expect(pause(ctx, name, func(ctx context.Context) error {
			return writes()[3].do(ctx, admin, s, name, fresh(s.a))
		}, func() { s.takeOver(ctx) })).To(Succeed())

		By("being seen by B, whose write on what it read before is a conflict")
		read := s.get(ctx, name)
		Expect(read.GetAnnotations()[s.key()]).To(HavePrefix(s.a))
		s.setAnnotation(read, fresh(s.b))
		read.SetResourceVersion("1")
		Expect(apierrors.IsConflict(admin.Update(ctx, read))).To(BeTrue())
	})

	It("commits a create that was admitted before B took over: no API can condition it on another object", func(ctx SpecContext) {
		s := begin(ctx)
		name := newName()
		Expect(pause(ctx, name, func(ctx context.Context) error {
			return writes()[0].do(ctx, admin, s, name, fresh(s.a))
		}, func() { s.takeOver(ctx) })).To(Succeed())
		Expect(s.get(ctx, name).GetAnnotations()[s.key()]).To(HavePrefix(s.a))
	})

	It("is not admitted when it arrives after B took over", func(ctx SpecContext) {
		s := begin(ctx)
		s.takeOver(ctx)
		Expect(writes()[0].do(ctx, admin, s, newName(), fresh(s.a))).To(beFenced("StaleToken"))
	})
})

// pause makes a write, does something else while the write waits between its check and its commit, and returns the write's
// answer.
func pause(ctx context.Context, name string, write func(ctx context.Context) error, meanwhile func()) error {
	GinkgoHelper()
	before := admitted()
	hold := gap.Hold(func(r *admissionv1.AdmissionRequest) bool { return r.Name == name || r.Name == "" })
	defer hold.Release()
	answer := make(chan error, 1)
	go func() { answer <- write(ctx) }()
	select {
	case <-hold.Entered():
	case err := <-answer:
		Fail("the write did not reach the gap: " + describe(err))
	}
	// The API server calls both webhooks at the same time: ours must have admitted the write, too.
	Eventually(admitted).Should(BeNumerically(">", before))
	meanwhile()
	hold.Release()
	return <-answer
}

// admitted returns the number of reviews that the manager has answered by admitting a current token.
func admitted() float64 {
	GinkgoHelper()
	families, err := manager.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, family := range families {
		if family.GetName() != "fencedlease_reviews_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, l := range metric.GetLabel() {
				if l.GetName() == "reason" && (l.GetValue() == "CurrentToken" || l.GetValue() == "SealedTerm") {
					sum += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

func label(ctx context.Context, s *story, name string) {
	GinkgoHelper()
	patch := `{"metadata":{"labels":{"name":"` + name + `"},"annotations":{"` + s.key() + `":"` + fresh(s.a) + `"}}}`
	Expect(admin.Patch(ctx, empty(s.namespace, name), client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
}
