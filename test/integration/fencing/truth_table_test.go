// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fencing_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/test/env"
)

var _ = Describe("The truth table", Ordered, func() {
	var s *story
	var spare []string

	// named gives deletecollection something to choose by.
	named := func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"name": o.GetName()}) }

	BeforeAll(func(ctx SpecContext) {
		s = begin(ctx)
		for range 200 {
			spare = append(spare, s.create(ctx, s.a, named))
		}
		s.takeOver(ctx)
	})

	// object returns the name for a write: a new one, or an object whose mark is A's or already B's.
	object := func(ctx context.Context, w write, writtenByB bool) string {
		GinkgoHelper()
		if w.creates {
			return newName()
		}
		if writtenByB {
			return s.create(ctx, s.b, named)
		}
		Expect(spare).NotTo(BeEmpty())
		name := spare[0]
		spare = spare[1:]
		return name
	}

	for _, w := range writes() {
		for _, dryRun := range []bool{false, true} {
			what := w.name
			if dryRun {
				what += ", dry-run"
			}
			clientFor := func(c client.Client) client.Client {
				if dryRun {
					return client.NewDryRunClient(c)
				}
				return c
			}
			if !w.byRequestOnly {
				It(what+" with the current token in the annotation is accepted", func(ctx SpecContext) {
					Expect(w.do(ctx, clientFor(admin), s, object(ctx, w, false), fresh(s.b))).To(Succeed())
				})
				It(what+" with a stale token in the annotation is refused before B has written", func(ctx SpecContext) {
					Expect(w.do(ctx, clientFor(admin), s, object(ctx, w, false), fresh(s.a))).To(beFenced("StaleToken"))
				})
				It(what+" with a stale token in the annotation is refused after B has written", func(ctx SpecContext) {
					Expect(w.do(ctx, clientFor(admin), s, object(ctx, w, true), fresh(s.a))).To(beStale())
				})
				It(what+" with garbage in the annotation is refused", func(ctx SpecContext) {
					Expect(w.do(ctx, clientFor(admin), s, object(ctx, w, false), "latest")).To(Or(beFenced("MalformedToken"), beRefusedByPolicy()))
				})
				It(what+" with a token from the future is refused", func(ctx SpecContext) {
					// Not the real lease's: evidence of a higher generation would raise its floor.
					Expect(w.do(ctx, client.NewDryRunClient(admin), s, object(ctx, w, false), "999999999999.zzzzzzzz/1")).To(beFenced("FutureToken"))
				})
			}
			It(what+" with the current token in the request is accepted", func(ctx SpecContext) {
				Expect(w.do(ctx, clientFor(s.carrying(s.b)), s, object(ctx, w, false), "")).To(Succeed())
			})
			It(what+" with a stale token in the request is refused before B has written", func(ctx SpecContext) {
				Expect(w.do(ctx, clientFor(s.carrying(s.a)), s, object(ctx, w, false), "")).To(beFenced("StaleToken"))
			})
			It(what+" with a stale token in the request is refused after B has written", func(ctx SpecContext) {
				Expect(w.do(ctx, clientFor(s.carrying(s.a)), s, object(ctx, w, true), "")).To(beStale())
			})
			It(what+" without a token is refused, also for an administrator", func(ctx SpecContext) {
				Expect(w.do(ctx, clientFor(admin), s, object(ctx, w, true), "")).To(beFenced("MissingToken"))
			})
		}
	}

	It("moves the mark in the same commit when the request carries the token", func(ctx SpecContext) {
		name := object(ctx, writes()[2], false)
		Expect(writes()[2].do(ctx, s.carrying(s.b), s, name, "")).To(Succeed())
		Expect(s.get(ctx, name).GetAnnotations()).To(HaveKeyWithValue(s.key(), s.b))
	})

	It("answers a conflict to the current leader whose status is based on an older version", func(ctx SpecContext) {
		name := s.create(ctx, s.b)
		read := s.get(ctx, name)
		Expect(writes()[3].do(ctx, admin, s, name, fresh(s.b))).To(Succeed())
		setPhase(read)
		Expect(s.carrying(s.b).Status().Update(ctx, read.DeepCopy())).To(Satisfy(apierrors.IsConflict))
		Expect(admin.Status().Update(ctx, read)).To(Satisfy(apierrors.IsConflict), "also of a writer who presents none")
	})

	It("refuses a request that inherits the newer leader's mark", func(ctx SpecContext) {
		name := s.create(ctx, s.b)
		read := s.get(ctx, name)
		setValue(read)
		Expect(admin.Update(ctx, read)).To(beFenced("MissingToken"))
		Expect(s.value(ctx, name)).To(Equal("first"))
	})

	It("judges writes by every served version", func(ctx SpecContext) {
		old := object(ctx, writes()[2], false)
		report := &unstructured.Unstructured{}
		report.SetGroupVersionKind(oldVersion())
		Expect(admin.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: old}, report)).To(Succeed())
		setValue(report)
		s.setAnnotation(report, fresh(s.a))
		Expect(admin.Update(ctx, report.DeepCopy())).To(beFenced("StaleToken"))
		s.setAnnotation(report, fresh(s.b))
		Expect(admin.Update(ctx, report)).To(Succeed())
	})

	It("judges creates by generateName", func(ctx SpecContext) {
		report := s.report("", fresh(s.a))
		report.SetGenerateName("report-")
		Expect(admin.Create(ctx, report.DeepCopy())).To(beFenced("StaleToken"))
		s.setAnnotation(report, fresh(s.b))
		Expect(admin.Create(ctx, report)).To(Succeed())
	})

	It("keeps marks from being removed, by anybody", func(ctx SpecContext) {
		name := s.create(ctx, s.b)
		read := s.get(ctx, name)
		read.SetAnnotations(nil)
		Expect(admin.Update(ctx, read)).To(beRefusedByPolicy())
		Expect(s.get(ctx, name).GetAnnotations()).To(HaveKey(s.key()))
	})

	It("lets a delete pass that the object's mark asks for", func(ctx SpecContext) {
		name := object(ctx, writes()[2], false)
		Expect(writes()[3].do(ctx, admin, s, name, s.b+"/delete")).To(Succeed())
		Expect(admin.Delete(ctx, env.BareReport(s.namespace, name))).To(Succeed())
	})

	It("explains a refusal so that a person at a terminal knows what to do", func(ctx SpecContext) {
		name := object(ctx, writes()[2], false)
		_, err := cluster.Kubectl(ctx, "annotate", "report", name, "-n", s.namespace, "--overwrite", s.key()+"="+s.a+"/x")
		Expect(err).To(MatchError(And(
			ContainSubstring("FencedLease "+s.namespace+"/report-writer"), ContainSubstring("token presented "+s.a+"/x is stale"),
			ContainSubstring(`"b" holds generation`), ContainSubstring("token needed "+s.b), ContainSubstring("acquire the lease again"),
		)))
	})
})
