//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"slices"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// required are the fields that exist as soon as there is a status.
var required = []string{"generation", "generationFloor", "handover", "holderIdentity", "seal", "sealedGeneration", "term", "token"}

// optional are the other fields of a status.
var optional = []string{"acquireTime", "conditions", "credentials", "observedGeneration", "renewTime"}

// unchecked is what the API server adds when a field is missing, as rules do not run then.
const unchecked = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"

// readable is an answer of the API server itself about a field that is missing or null.
var readable = Or(
	Equal("Required value"), ContainSubstring(unchecked), ContainSubstring("in body must be of type"), ContainSubstring("Unsupported value: null"),
)

// combinations returns every subset of names, the empty one first.
func combinations(names []string) [][]string {
	subsets := make([][]string, 0, 1<<len(names))
	for bits := range 1 << len(names) {
		var subset []string
		for i, name := range names {
			if bits&(1<<i) != 0 {
				subset = append(subset, name)
			}
		}
		subsets = append(subsets, subset)
	}
	return subsets
}

var _ = Describe("Fields that are not there", func() {
	for _, by := range verbs {
		It("the status is not removed by "+by.name, func(ctx SpecContext) {
			for i, from := range []state{floorOnly, heldByB, releasedByB} {
				namespace := cluster.CreateNamespace(GinkgoT())
				lease := from.lease(ctx, fencedLease, namespace, "lease-"+strconv.Itoa(i))
				names, others := broken(causes(by.write(ctx, lease, nil)))
				Expect(names).To(Equal([]string{"removal"}))
				Expect(others).To(BeEmpty())
				Expect(stored(ctx, lease).Object["status"]).To(Equal(lease.Object["status"]))
			}
		})

		It("an empty status is refused by "+by.name, func(ctx SpecContext) {
			namespace := cluster.CreateNamespace(GinkgoT())
			lease := heldByB.lease(ctx, fencedLease, namespace, "held")
			err := by.write(ctx, lease, fields{})
			names, others := broken(causes(err))
			Expect(names).To(BeEmpty())
			Expect(others).To(HaveEach(readable))
			if by.name != byApply.name {
				for _, name := range required {
					Expect(err).To(MatchError(ContainSubstring("status." + name + ": Required value")))
				}
			}
			Expect(stored(ctx, lease).Object["status"]).To(Equal(lease.Object["status"]))
		})

		for _, name := range required {
			It("no status is without "+name+" after "+by.name, func(ctx SpecContext) {
				namespace := cluster.CreateNamespace(GinkgoT())
				for i, from := range []state{floorOnly, heldByB} {
					lease := from.lease(ctx, fencedLease, namespace, "lease-"+strconv.Itoa(i))
					status := statusOf(lease)
					delete(status, name)
					Expect(causes(by.write(ctx, lease, status))).To(ConsistOf("Required value", ContainSubstring(unchecked)))
					// PUT and apply can say null as well.
					status[name] = nil
					Expect(causes(by.write(ctx, lease, status))).To(HaveEach(readable))
					Expect(stored(ctx, lease).Object["status"]).To(Equal(lease.Object["status"]))
				}
				lease := noStatus.lease(ctx, fencedLease, namespace, "without-status")
				status := first(100)
				delete(status, name)
				Expect(causes(by.write(ctx, lease, status))).To(ConsistOf("Required value", ContainSubstring(unchecked)))
				Expect(stored(ctx, lease).Object).NotTo(HaveKey("status"))
			})
		}
	}

	It("a write of the main resource leaves the status alone, whatever it says about it", func(ctx SpecContext) {
		namespace := cluster.CreateNamespace(GinkgoT())
		lease := heldByB.lease(ctx, fencedLease, namespace, "held")
		status := statusOf(lease)

		put := lease.DeepCopy()
		delete(put.Object, "status")
		put.SetLabels(map[string]string{"put": "without-status"})
		Expect(admin.Update(ctx, put)).To(Succeed())
		Expect(statusOf(put)).To(Equal(status))

		put.SetLabels(map[string]string{"put": "with-status"})
		possess("C", 500, termC)(put.Object["status"].(fields))
		Expect(admin.Update(ctx, put)).To(Succeed())
		Expect(statusOf(put)).To(Equal(status))

		Expect(admin.Patch(ctx, put, mergePatch(fields{"status": nil, "metadata": fields{"labels": fields{"put": nil}}}))).To(Succeed())
		Expect(put.GetLabels()).To(BeEmpty())
		Expect(statusOf(put)).To(Equal(status))

		applied := heldByB.lease(ctx, fencedLease, namespace, "applied")
		applied.Object = fields{
			"metadata": fields{"name": "applied", "namespace": namespace}, "spec": fields{"leaseDurationSeconds": int64(20)}, "status": first(0),
		}
		applied.SetGroupVersionKind(fencedLease)
		Expect(admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(owner), client.ForceOwnership)).To(Succeed())
		Expect(stored(ctx, applied).Object["spec"]).To(HaveKeyWithValue("leaseDurationSeconds", int64(20)))
		Expect(statusOf(stored(ctx, applied))).To(Equal(status))
	})

	// F-21 of the field reports: rules broke on missing fields and answered with an evaluation error.
	Describe("every rule, broken with every combination of missing fields, still answers with a sentence", func() {
		tried := map[string]bool{}
		for _, w := range writes {
			// One write for each rule, which breaks nothing else.
			if len(w.broken) != 1 || tried[w.broken[0]] {
				continue
			}
			tried[w.broken[0]] = true
			It(w.broken[0]+": "+w.name, func(ctx SpecContext) {
				namespace := cluster.CreateNamespace(GinkgoT())
				lease := w.from.lease(ctx, fencedLease, namespace, "lease")
				if w.spec != nil {
					Expect(admin.Patch(ctx, lease, mergePatch(fields{"spec": w.spec}))).To(Succeed())
				}
				try := func(by verb, missing []string) {
					status := statusOf(lease)
					w.change(status)
					for _, name := range missing {
						delete(status, name)
					}
					names, others := broken(causes(by.write(ctx, lease, status)))
					Expect(len(names)+len(others)).To(BeNumerically(">", 0), "%s without %v", by.name, missing)
					if len(others) > 0 {
						Expect(others).To(HaveEach(readable), "%s without %v", by.name, missing)
					}
					if !slices.ContainsFunc(missing, func(name string) bool { return slices.Contains(required, name) }) && !slices.Contains(missing, "credentials") {
						Expect(names).To(Equal(w.broken), "%s without %v", by.name, missing)
					}
				}
				for _, missing := range combinations(required) {
					try(byMergePatch, missing)
				}
				for _, by := range verbs {
					for _, name := range required {
						try(by, []string{name})
					}
				}
				for _, missing := range combinations(optional) {
					if slices.Contains(missing, "credentials") && slices.Contains(w.broken, "credential") {
						continue // Nothing is broken then.
					}
					try(byPut, missing)
				}
				Expect(stored(ctx, lease).GetResourceVersion()).To(Equal(lease.GetResourceVersion()))
			})
		}

		It("also when spec has nothing but one field", func(ctx SpecContext) {
			namespace := cluster.CreateNamespace(GinkgoT())
			for i, spec := range []fields{{"handover": "Lazy"}, {"minGeneration": int64(0)}, {"enforcement": "Audit"}} {
				lease := heldByB.lease(ctx, fencedLease, namespace, "lease-"+strconv.Itoa(i))
				lease.Object["spec"] = spec
				Expect(admin.Update(ctx, lease)).To(Succeed())
				status := statusOf(lease)
				possess("C", 200, termC)(status)
				names, others := broken(causes(byPut.write(ctx, lease, status)))
				Expect(names).To(Equal([]string{"generation"}))
				Expect(others).To(BeEmpty())
			}
		})
	})
})
