//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// rule is a rule at the root of the schema, by a short name and the whole sentence that a refusal ends with.
type rule struct {
	name, message string
}

var rules = []rule{
	{"name", "the name must have at most 63 characters, as it is part of the annotation key token.fencedlease.io/<name>: choose a shorter name"},
	{"removal", "status must not be removed, it records the generation: send the status unchanged"},
	{"first", "the first status sets generationFloor and holds no term: wait until the controller has set generationFloor, then acquire"},
	{"floor", "status.generationFloor must not fall: read the lease again and keep at least its value"},
	{"generation", "status.generation changes only with a new term, to one above the largest of generation, generationFloor and spec.minGeneration: the term that was written has ended or the lease has changed, read it again"},
	{"holder", "status.holderIdentity is set with a new term and within a term can only be emptied: the term that was written has ended, read the lease again"},
	{"new term", "a new status.term needs a status.holderIdentity: name the holder"},
	{"token", "status.token must be <generation>.<term>, and empty while there is no term: write all three together"},
	{"credential", "a credential can be added for the current term only: the term that was written has ended, read the lease again"},
	{"sealed above", "status.sealedGeneration must not exceed status.generation: seal the current term"},
	{"sealed falls", "status.sealedGeneration must not fall: read the lease again and keep at least its value"},
	{"handover", "status.handover and status.seal are set at acquisition: handover is copied from spec, and seal is Required if the new or the ended term hands over by Seal or the ended term was never sealed; read the lease again"},
}

// write is a write to /status and its answer.
type write struct {
	name string
	from state
	// spec is changed before the write, if not nil.
	spec   fields
	change func(fields)
	// broken are the names of the rules that refuse it. None means that it is accepted.
	broken []string
}

var writes = []write{
	{name: "the first status with a floor and nothing held", from: noStatus, change: whole(first(100))},
	{name: "the first status with a holder", from: noStatus, change: all(whole(first(100)), set("holderIdentity", "A")), broken: []string{"first"}},
	{name: "the first status with a generation", from: noStatus, change: all(whole(first(100)), set("generation", 5)), broken: []string{"first"}},
	{name: "the first status with a whole term", from: noStatus, change: all(whole(first(100)), possess("A", 101, termA)), broken: []string{"first"}},
	{name: "the first status with a term of generation 0", from: noStatus, change: all(whole(first(100)), set("term", termA, "token", "0."+termA)), broken: []string{"first"}},

	{name: "a higher floor", from: heldByB, change: set("generationFloor", 200)},
	{name: "a floor one lower", from: heldByB, change: set("generationFloor", 99), broken: []string{"floor"}},
	{name: "a floor of 0", from: floorOnly, change: set("generationFloor", 0), broken: []string{"floor"}},

	{name: "the first acquisition, one above the floor", from: floorOnly, change: possess("A", 101, termA)},
	{name: "an acquisition one above the generation", from: heldByB, change: possess("C", 103, termC)},
	{name: "an acquisition by the same holder in a new term", from: heldByB, change: possess("B", 103, termC)},
	{name: "an acquisition after a release", from: releasedByB, change: possess("C", 103, termC)},
	{name: "an acquisition one above minGeneration", from: heldByB, spec: fields{"minGeneration": 500}, change: possess("C", 501, termC)},
	{name: "an acquisition one above a raised floor", from: append(heldByB[:3:3], step{status: set("generationFloor", 300)}), change: possess("C", 301, termC)},
	{name: "an acquisition below minGeneration", from: heldByB, spec: fields{"minGeneration": 500}, change: possess("C", 103, termC), broken: []string{"generation"}},
	{name: "an acquisition below a raised floor", from: append(heldByB[:3:3], step{status: set("generationFloor", 300)}), change: possess("C", 103, termC), broken: []string{"generation"}},
	{name: "a new term under the same generation", from: heldByB, change: possess("C", 102, termC), broken: []string{"generation"}},
	{name: "a new term two above", from: heldByB, change: possess("C", 104, termC), broken: []string{"generation"}},
	{name: "a new term under a lower generation", from: heldByB, change: possess("C", 50, termC), broken: []string{"generation"}},
	{name: "a new term under the generation of 18 digits", from: heldByB, change: possess("C", 999999999999999999, termC), broken: []string{"generation"}},
	{name: "a higher generation in the same term", from: heldByB, change: possess("B", 103, termB), broken: []string{"generation"}},
	{name: "a lower generation in the same term", from: heldByB, change: possess("B", 101, termB), broken: []string{"generation"}},
	{name: "a higher generation without a term", from: floorOnly, change: set("generation", 101), broken: []string{"generation"}},

	{name: "a renewal of renewTime alone", from: heldByB, change: set("renewTime", "2026-11-01T00:00:02.000000Z")},
	{name: "a late renewal by A", from: heldByB, change: set("holderIdentity", "A", "generation", 101, "term", termA, "renewTime", "2026-11-01T00:00:02.000000Z"), broken: []string{"generation", "token"}},
	{name: "a late renewal by A with its token", from: heldByB, change: possess("A", 101, termA), broken: []string{"generation"}},
	{name: "a late renewal by A after a release by B", from: releasedByB, change: possess("A", 101, termA), broken: []string{"generation"}},
	{name: "a late release by A", from: heldByB, change: set("holderIdentity", "", "generation", 101, "term", termA), broken: []string{"generation", "holder", "new term", "token"}},

	{name: "a release", from: heldByB, change: set("holderIdentity", "")},
	{name: "another holder in the same term", from: heldByB, change: set("holderIdentity", "C"), broken: []string{"holder"}},
	{name: "the same holder in the same term after its release", from: releasedByB, change: set("holderIdentity", "B"), broken: []string{"holder"}},
	{name: "a holder without a term", from: floorOnly, change: set("holderIdentity", "A"), broken: []string{"holder"}},
	{name: "a new term without a holder", from: heldByB, change: possess("", 103, termC), broken: []string{"holder", "new term"}},
	{name: "a new term without a holder after a release", from: releasedByB, change: possess("", 103, termC), broken: []string{"new term"}},
	{name: "the end of all terms", from: releasedByB, change: set("term", "", "token", "", "generation", 103), broken: []string{"new term"}},

	{name: "a token of another generation", from: heldByB, change: set("token", "101."+termB), broken: []string{"token"}},
	{name: "a token of another term", from: heldByB, change: set("token", "102."+termA), broken: []string{"token"}},
	{name: "a term without a token", from: heldByB, change: set("token", ""), broken: []string{"token"}},
	{name: "a token without a term", from: floorOnly, change: set("token", "0."+termA), broken: []string{"token"}},
	{name: "an acquisition that keeps the old token", from: heldByB, change: all(possess("C", 103, termC), set("token", "102."+termB)), broken: []string{"token"}},

	{name: "a credential of the current term", from: heldByB, change: credentials("JTI=b", termB)},
	{name: "a second credential of the current term, the old one kept", from: credentialB, change: credentials("JTI=b2", termB, "JTI=b", termB, "JTI=a", termA)},
	{name: "an old credential dropped", from: credentialB, change: credentials("JTI=b", termB)},
	{name: "all credentials dropped", from: credentialB, change: drop("credentials")},
	{name: "an acquisition that keeps the old credentials", from: credentialB, change: possess("C", 103, termC)},
	{name: "a credential of an ended term", from: heldByB, change: credentials("JTI=a", termA), broken: []string{"credential"}},
	{name: "a second credential of an ended term", from: credentialB, change: credentials("JTI=a2", termA, "JTI=b", termB, "JTI=a", termA), broken: []string{"credential"}},
	{name: "a credential given to an ended term", from: credentialB, change: credentials("JTI=b", termA, "JTI=a", termA), broken: []string{"credential"}},
	{name: "a credential in the first status", from: noStatus, change: all(whole(first(100)), credentials("JTI=a", termA)), broken: []string{"credential"}},

	{name: "the seal of the current term", from: sealDue, change: set("sealedGeneration", 101)},
	{name: "a seal above the generation", from: sealDue, change: set("sealedGeneration", 102), broken: []string{"sealed above"}},
	{name: "a seal in the first status", from: noStatus, change: all(whole(first(100)), set("sealedGeneration", 1)), broken: []string{"sealed above"}},
	{name: "a seal taken back", from: sealDone, change: set("sealedGeneration", 100), broken: []string{"sealed falls"}},
	{name: "a seal forgotten", from: sealDone, change: set("sealedGeneration", 0), broken: []string{"sealed falls"}},

	{name: "a Seal term after a Lazy one", from: heldByA, spec: fields{"handover": "Seal"}, change: all(possess("B", 102, termB), set("handover", "Seal", "seal", "Required"))},
	{name: "a Lazy term after a Seal one, seal Required", from: sealDone, spec: fields{"handover": "Lazy"}, change: all(possess("B", 102, termB), set("handover", "Lazy", "seal", "Required"))},
	{name: "a Lazy term after a Lazy one that was never sealed, seal Required", from: lazyDue, change: all(possess("C", 103, termC), set("seal", "Required"))},
	{name: "a Lazy term after a Lazy one that was sealed, seal NotRequired", from: lazyDone, change: all(possess("C", 103, termC), set("seal", "NotRequired"))},
	{name: "a Lazy term after a Seal one, seal NotRequired", from: sealDone, spec: fields{"handover": "Lazy"}, change: all(possess("B", 102, termB), set("handover", "Lazy", "seal", "NotRequired")), broken: []string{"handover"}},
	{name: "a Lazy term after a Seal one that was never sealed, seal NotRequired", from: sealDue, spec: fields{"handover": "Lazy"}, change: all(possess("B", 102, termB), set("handover", "Lazy", "seal", "NotRequired")), broken: []string{"handover"}},
	{name: "a Lazy term after a Lazy one that was never sealed, seal NotRequired", from: lazyDue, change: all(possess("C", 103, termC), set("seal", "NotRequired")), broken: []string{"handover"}},
	{name: "a Lazy term after a Lazy one that was sealed, seal Required", from: lazyDone, change: all(possess("C", 103, termC), set("seal", "Required")), broken: []string{"handover"}},
	{name: "a Seal term, seal NotRequired", from: heldByA, spec: fields{"handover": "Seal"}, change: all(possess("B", 102, termB), set("handover", "Seal")), broken: []string{"handover"}},
	{name: "a term with another handover than spec", from: heldByA, spec: fields{"handover": "Seal"}, change: all(possess("B", 102, termB), set("seal", "Required")), broken: []string{"handover"}},
	{name: "another handover in the same term", from: heldByA, spec: fields{"handover": "Seal"}, change: set("handover", "Seal"), broken: []string{"handover"}},
	{name: "no seal any more in the same term", from: sealDue, change: set("seal", "NotRequired"), broken: []string{"handover"}},
	{name: "a seal from now on in the same term", from: heldByA, change: set("seal", "Required"), broken: []string{"handover"}},
}

// whole changes the status to a whole one.
func whole(values fields) func(fields) {
	return func(status fields) {
		for name, value := range values {
			status[name] = value
		}
	}
}

// answer makes the write and returns its error. The status before it is checked to be there still after a refusal.
func (w write) answer(ctx SpecContext, kind schema.GroupVersionKind, namespace, name string, by verb) error {
	GinkgoHelper()
	lease := w.from.lease(ctx, kind, namespace, name)
	if w.spec != nil {
		Expect(admin.Patch(ctx, lease, mergePatch(fields{"spec": w.spec}))).To(Succeed())
	}
	status := statusOf(lease)
	w.change(status)
	err := by.write(ctx, lease, status)
	now := stored(ctx, lease)
	if err != nil {
		Expect(now.GetResourceVersion()).To(Equal(lease.GetResourceVersion()), "a refused write changes nothing")
	} else {
		Expect(statusOf(now)).To(Equal(status))
	}
	return err
}

var _ = Describe("Rules of possession", func() {
	for _, w := range writes {
		verdict := "are accepted"
		if len(w.broken) > 0 {
			verdict = "are refused: " + strings.Join(w.broken, ", ")
		}
		It(w.name+" "+verdict, func(ctx SpecContext) {
			namespace := cluster.CreateNamespace(GinkgoT())
			for i, by := range verbs {
				err := w.answer(ctx, fencedLease, namespace, "lease-"+strconv.Itoa(i), by)
				if len(w.broken) == 0 {
					Expect(err).NotTo(HaveOccurred(), by.name)
					continue
				}
				names, others := broken(causes(err))
				Expect(names).To(Equal(w.broken), by.name)
				Expect(others).To(BeEmpty(), by.name)
			}
		})
	}

	It("covers every rule of the schema", func() {
		var messages, covered []string
		for _, r := range installed.Spec.Versions[0].Schema.OpenAPIV3Schema.XValidations {
			messages = append(messages, r.Message)
		}
		for _, r := range rules {
			covered = append(covered, r.message)
		}
		Expect(messages).To(ConsistOf(covered))
	})

	// Shows that the cases can fail: with a rule taken away, what only this rule refuses is accepted.
	It("needs every rule", func(ctx SpecContext) {
		var without []*apiextensionsv1.CustomResourceDefinition
		kinds := map[string]schema.GroupVersionKind{}
		for i, r := range rules {
			group := fmt.Sprintf("without-%d.example.com", i)
			crd := &apiextensionsv1.CustomResourceDefinition{
				ObjectMeta: metav1.ObjectMeta{Name: "fencedleases." + group},
				Spec:       *installed.Spec.DeepCopy(),
			}
			crd.Spec.Group = group
			crd.Spec.Names.ShortNames, crd.Spec.Names.Categories = nil, nil
			root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
			root.XValidations = slices.DeleteFunc(root.XValidations, func(v apiextensionsv1.ValidationRule) bool { return v.Message == r.message })
			without = append(without, crd)
			kinds[r.name] = schema.GroupVersionKind{Group: group, Version: fencedLease.Version, Kind: fencedLease.Kind}
		}
		_, err := envtest.InstallCRDs(cluster.Config(), envtest.CRDInstallOptions{CRDs: without, MaxTime: timeout})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			for _, crd := range without {
				Expect(admin.Delete(ctx, crd)).To(Succeed())
			}
		})

		// Every one of these writes is refused by nothing else.
		missed := map[string]int{}
		namespace := cluster.CreateNamespace(GinkgoT())
		for i, w := range writes {
			if len(w.broken) != 1 {
				continue
			}
			for j, by := range verbs {
				Expect(w.answer(ctx, kinds[w.broken[0]], namespace, fmt.Sprintf("lease-%d-%d", i, j), by)).To(Succeed(), "%s, %s", w.name, by.name)
			}
			missed[w.broken[0]]++
		}
		for _, by := range verbs {
			lease := heldByB.lease(ctx, kinds["removal"], namespace, "removal-"+strings.ReplaceAll(strings.ToLower(by.name), " ", "-"))
			Expect(by.write(ctx, lease, nil)).To(Succeed(), by.name)
			missed["removal"]++
		}
		noStatus.lease(ctx, kinds["name"], namespace, strings.Repeat("n", 64))
		missed["name"]++
		for _, r := range rules {
			Expect(missed).To(HaveKey(r.name))
		}
	})
})
