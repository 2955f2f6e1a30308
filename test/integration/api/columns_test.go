//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

// ages are what kubectl prints for times.
var ages = regexp.MustCompile(`\b[0-9]+(y|d|h|m|s)([0-9]+(d|h|m|s))?\b`)

// table replaces ages and the width of columns.
func table(out string) string {
	var lines []string
	for line := range strings.Lines(ages.ReplaceAllString(out, "AGO")) {
		lines = append(lines, strings.Join(strings.Fields(line), " | "))
	}
	return strings.Join(lines, "\n")
}

var _ = Describe("The definition", func() {
	It("is accepted without complaint", func() {
		for _, condition := range installed.Status.Conditions {
			switch condition.Type {
			case apiextensionsv1.Established, apiextensionsv1.NamesAccepted:
				Expect(condition.Status).To(Equal(apiextensionsv1.ConditionTrue), string(condition.Type))
			case apiextensionsv1.NonStructuralSchema:
				Expect(condition.Status).To(Equal(apiextensionsv1.ConditionFalse), condition.Message)
			default:
			}
		}
		Expect(installed.Status.AcceptedNames.ShortNames).To(Equal([]string{"flease"}))
		Expect(installed.Spec.Scope).To(Equal(apiextensionsv1.NamespaceScoped))
	})

	It("shows who holds a lease, by its short name", func(ctx SpecContext) {
		namespace := cluster.CreateNamespace(GinkgoT())
		Expect(admin.Create(ctx, env.NewLease(namespace, "a-new"))).To(Succeed())

		never := env.NewLease(namespace, "b-never-held")
		Expect(admin.Create(ctx, never)).To(Succeed())
		Expect(env.SetFloor(ctx, admin, never, 48213)).To(Succeed())

		held := env.NewLease(namespace, "c-held")
		Expect(admin.Create(ctx, held)).To(Succeed())
		Expect(env.SetFloor(ctx, admin, held, 48213)).To(Succeed())
		Expect(env.Acquire(ctx, admin, held, "report-7f9c_3b1e")).To(Succeed())
		held.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInForce, LastTransitionTime: metav1.Now()},
			{Type: v1alpha1.ConditionSealed, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSealPending, LastTransitionTime: metav1.Now()},
		}
		Expect(admin.Status().Update(ctx, held)).To(Succeed())

		released := env.NewLease(namespace, "d-released")
		Expect(admin.Create(ctx, released)).To(Succeed())
		Expect(env.SetFloor(ctx, admin, released, 7)).To(Succeed())
		Expect(env.Acquire(ctx, admin, released, "report-7f9c_3b1e")).To(Succeed())
		Expect(env.Release(ctx, admin, released)).To(Succeed())

		out, err := cluster.Kubectl(ctx, "get", "flease", "-n", namespace)
		Expect(err).NotTo(HaveOccurred())
		Expect(table(out)).To(Equal(strings.TrimSpace(`
NAME | HOLDER | GENERATION | RENEWED | SEALED | READY | AGE
a-new | AGO
b-never-held | 0 | AGO
c-held | report-7f9c_3b1e | 48214 | AGO | False | True | AGO
d-released | 8 | AGO | AGO`)))

		_, err = cluster.Kubectl(ctx, "explain", "flease.status.generationFloor")
		Expect(err).NotTo(HaveOccurred())
	})

	It("tells a client of kubectl what was wrong one sentence a line", func(ctx SpecContext) {
		namespace := cluster.CreateNamespace(GinkgoT())
		lease := heldByB.lease(ctx, fencedLease, namespace, "writer")
		_, err := cluster.Kubectl(ctx, "patch", "flease", lease.GetName(), "-n", namespace, "--subresource=status", "--type=merge",
			"-p", `{"status":{"generation":101,"term":"aaaaaaaa","holderIdentity":""}}`)
		Expect(err).To(HaveOccurred())
		_, refusal, found := strings.Cut(err.Error(), "exit status 1: ")
		Expect(found).To(BeTrue())
		Expect(strings.TrimSpace(refusal)).To(Equal(lateRelease))
	})
})

const lateRelease = `The FencedLease "writer" is invalid: 
* status.generation: Forbidden: status.generation changes only with a new term, to one above the largest of generation, generationFloor and spec.minGeneration: the term that was written has ended or the lease has changed, read it again
* status.holderIdentity: Forbidden: status.holderIdentity is set with a new term and within a term can only be emptied: the term that was written has ended, read the lease again
* status.holderIdentity: Forbidden: a new status.term needs a status.holderIdentity: name the holder
* status.token: Invalid value: status.token must be <generation>.<term>, and empty while there is no term: write all three together`
