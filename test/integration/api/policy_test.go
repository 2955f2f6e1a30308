//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

// names returns n different names.
func names(n int, format string) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return list
}

var _ = Describe("Policy", func() {
	guard := func(change func(*v1alpha1.Guard)) func(*v1alpha1.FencedLease) {
		return func(l *v1alpha1.FencedLease) { change(&l.Spec.Guards[0]) }
	}
	spec := func(change func(*v1alpha1.FencedLeaseSpec)) func(*v1alpha1.FencedLease) {
		return func(l *v1alpha1.FencedLease) { change(&l.Spec) }
	}
	groups := func(groups ...string) func(*v1alpha1.FencedLease) {
		return guard(func(g *v1alpha1.Guard) { g.APIGroups = groups })
	}
	resources := func(resources ...string) func(*v1alpha1.FencedLease) {
		return guard(func(g *v1alpha1.Guard) { g.Resources = resources })
	}
	subjects := func(subjects ...v1alpha1.Subject) func(*v1alpha1.FencedLease) {
		return guard(func(g *v1alpha1.Guard) { g.Subjects = subjects })
	}
	many := func(n int, subject v1alpha1.Subject) []v1alpha1.Subject {
		list := make([]v1alpha1.Subject, n)
		for i := range list {
			list[i] = subject
		}
		return list
	}
	user := v1alpha1.Subject{Kind: v1alpha1.SubjectUser, Name: "jane"}

	DescribeTable("accepts", func(ctx SpecContext, change func(*v1alpha1.FencedLease)) {
		Expect(admin.Create(ctx, env.NewLease(cluster.CreateNamespace(GinkgoT()), "writer", change))).To(Succeed())
	},
		Entry("no guards", spec(func(s *v1alpha1.FencedLeaseSpec) { s.Guards = nil })),
		Entry("16 guards", spec(func(s *v1alpha1.FencedLeaseSpec) {
			for range 15 {
				s.Guards = append(s.Guards, s.Guards[0])
			}
		})),
		Entry("8 groups", groups(names(8, "g%d.example.com")...)),
		Entry("a group of 253 characters", groups(strings.Repeat("g", 251)+".k")),
		Entry("16 resources", resources(names(16, "resources%d")...)),
		Entry("a resource, its status, its scale, and another with all of its subresources", resources("reports", "reports/status", "reports/scale", "books/*")),
		Entry("a resource of 63 characters with all of its subresources", resources(strings.Repeat("r", 63)+"/*")),
		Entry("empty selectors", guard(func(g *v1alpha1.Guard) {
			g.ObjectSelector, g.NamespaceSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
		})),
		Entry("subjects of every kind", subjects(user,
			v1alpha1.Subject{Kind: v1alpha1.SubjectGroup, Name: "system:serviceaccounts:reports"},
			v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Name: "worker"},
			v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Name: "worker", Namespace: "reports"})),
		Entry("32 subjects", subjects(many(32, user)...)),
		Entry("the largest minGeneration", spec(func(s *v1alpha1.FencedLeaseSpec) { s.MinGeneration = ptr.To[int64](1e15) })),
		Entry("the shortest lease", spec(func(s *v1alpha1.FencedLeaseSpec) { s.LeaseDurationSeconds = 1 })),
		Entry("the longest lease", spec(func(s *v1alpha1.FencedLeaseSpec) { s.LeaseDurationSeconds = 3600 })),
	)

	DescribeTable("refuses", func(ctx SpecContext, change func(*v1alpha1.FencedLease), field, message string) {
		err := admin.Create(ctx, env.NewLease(cluster.CreateNamespace(GinkgoT()), "writer", change))
		Expect(causes(err)).To(ContainElement(ContainSubstring(message)))
		Expect(err).To(MatchError(ContainSubstring(field)))
		Expect(err).NotTo(MatchError(ContainSubstring("no such key")))
	},
		Entry("the core group", groups(""), "spec.guards[0].apiGroups[0]", "should be at least 3 chars long"),
		Entry("all groups", groups("*"), "spec.guards[0].apiGroups[0]", "should be at least 3 chars long"),
		Entry("all groups, as a domain", groups("*.example.com"), "spec.guards[0].apiGroups[0]", "should match"),
		Entry("a group without a dot, as only built-in ones have", groups("apps"), "spec.guards[0].apiGroups[0]", "should match"),
		Entry("a group in capital letters", groups("Example.com"), "spec.guards[0].apiGroups[0]", "should match"),
		Entry("a group of 254 characters", groups(strings.Repeat("g", 252)+".k"), "spec.guards[0].apiGroups[0]", "may not be more than 253"),
		Entry("no group", groups(), "spec.guards[0].apiGroups", "Required value"),
		Entry("9 groups", groups(names(9, "g%d.example.com")...), "spec.guards[0].apiGroups", "must have at most 8 items"),
		Entry("a group twice", groups("example.com", "example.com"), "spec.guards[0].apiGroups[1]", "Duplicate value"),

		Entry("all resources", resources("*"), "spec.guards[0].resources[0]", "should match"),
		Entry("all resources with their subresources", resources("*/*"), "spec.guards[0].resources[0]", "should match"),
		Entry("the status of all resources", resources("*/status"), "spec.guards[0].resources[0]", "should match"),
		Entry("a subresource that custom resources do not have", resources("reports/exec"), "spec.guards[0].resources[0]", "should match"),
		Entry("an empty resource", resources(""), "spec.guards[0].resources[0]", "should be at least 1 chars long"),
		Entry("a resource in capital letters", resources("Reports"), "spec.guards[0].resources[0]", "should match"),
		Entry("a resource of 81 characters", resources(strings.Repeat("r", 81)), "spec.guards[0].resources[0]", "may not be more than 80"),
		Entry("no resource", resources(), "spec.guards[0].resources", "Required value"),
		Entry("17 resources", resources(names(17, "resources%d")...), "spec.guards[0].resources", "must have at most 16 items"),
		Entry("a resource twice", resources("reports", "reports"), "spec.guards[0].resources[1]", "Duplicate value"),

		Entry("17 guards", spec(func(s *v1alpha1.FencedLeaseSpec) {
			for range 16 {
				s.Guards = append(s.Guards, s.Guards[0])
			}
		}), "spec.guards", "must have at most 16 items"),

		Entry("a user with a namespace", subjects(v1alpha1.Subject{Kind: v1alpha1.SubjectUser, Name: "jane", Namespace: "reports"}),
			"spec.guards[0].subjects[0].namespace", "namespace is for the kind ServiceAccount only: remove it"),
		Entry("a group with a namespace", subjects(v1alpha1.Subject{Kind: v1alpha1.SubjectGroup, Name: "writers", Namespace: "reports"}),
			"spec.guards[0].subjects[0].namespace", "namespace is for the kind ServiceAccount only: remove it"),
		Entry("a subject of another kind", subjects(v1alpha1.Subject{Kind: "Robot", Name: "jane"}), "spec.guards[0].subjects[0].kind", "Unsupported value"),
		Entry("a subject without a kind", subjects(v1alpha1.Subject{Name: "jane", Namespace: "reports"}), "spec.guards[0].subjects[0].kind", "Required value"),
		Entry("a subject without a name", subjects(v1alpha1.Subject{Kind: v1alpha1.SubjectUser}), "spec.guards[0].subjects[0].name", "Required value"),
		Entry("33 subjects", subjects(many(33, user)...), "spec.guards[0].subjects", "must have at most 32 items"),

		Entry("a negative minGeneration", spec(func(s *v1alpha1.FencedLeaseSpec) { s.MinGeneration = ptr.To[int64](-1) }), "spec.minGeneration", "should be greater than or equal to 0"),
		Entry("a minGeneration that no history reaches", spec(func(s *v1alpha1.FencedLeaseSpec) { s.MinGeneration = ptr.To[int64](1e15 + 1) }), "spec.minGeneration", "should be less than or equal to"),
		Entry("a negative lease", spec(func(s *v1alpha1.FencedLeaseSpec) { s.LeaseDurationSeconds = -1 }), "spec.leaseDurationSeconds", "should be greater than or equal to 1"),
		Entry("a lease of more than an hour", spec(func(s *v1alpha1.FencedLeaseSpec) { s.LeaseDurationSeconds = 3601 }), "spec.leaseDurationSeconds", "should be less than or equal to 3600"),
		Entry("an unknown enforcement", spec(func(s *v1alpha1.FencedLeaseSpec) { s.Enforcement = "Warn" }), "spec.enforcement", "Unsupported value"),
		Entry("an unknown handover", spec(func(s *v1alpha1.FencedLeaseSpec) { s.Handover = "Eager" }), "spec.handover", "Unsupported value"),
		Entry("nothing at all", spec(func(s *v1alpha1.FencedLeaseSpec) { *s = v1alpha1.FencedLeaseSpec{} }), "spec", "Required value"),
	)
})

var _ = Describe("Bounds of possession", func() {
	DescribeTable("refuse", func(ctx SpecContext, change func(fields), message string) {
		namespace := cluster.CreateNamespace(GinkgoT())
		for i, by := range verbs {
			lease := heldByB.lease(ctx, fencedLease, namespace, fmt.Sprintf("lease-%d", i))
			status := statusOf(lease)
			change(status)
			messages := causes(by.write(ctx, lease, status))
			Expect(messages).To(ContainElement(ContainSubstring(message)), by.name)
			Expect(messages).NotTo(ContainElement(ContainSubstring("no such key")), by.name)
		}
	},
		Entry("a generation of 19 digits", set("generation", 1_100_000_000_000_000_000), "should be less than or equal to"),
		Entry("a negative generation", set("generation", -1), "should be greater than or equal to 0"),
		Entry("a floor that no history reaches", set("generationFloor", 1_000_000_000_000_001), "should be less than or equal to"),
		Entry("a term of 7 characters", possess("C", 103, "ccccccc"), "should match"),
		Entry("a term of 9 characters", possess("C", 103, "ccccccccc"), "may not be more than 8"),
		Entry("a term in capital letters", possess("C", 103, "CCCCCCCC"), "should match"),
		Entry("a token with an operation", set("token", "102."+termB+"/1"), "should match"),
		Entry("a token that is no number", set("token", "x."+termB), "should match"),
		Entry("a holder of 254 characters", set("holderIdentity", strings.Repeat("h", 254)), "may not be more than 253"),
		Entry("an unknown handover", set("handover", "Eager"), "Unsupported value"),
		Entry("an unknown seal", set("seal", "Maybe"), "Unsupported value"),
		Entry("9 credentials", credentials("0", termB, "1", termB, "2", termB, "3", termB, "4", termB, "5", termB, "6", termB, "7", termB, "8", termB), "must have at most 8 items"),
		Entry("a credential without a term", set("credentials", []any{fields{"id": "JTI=b"}}), "Required value"),
	)

	It("refuse a credential without an id", func(ctx SpecContext) {
		namespace := cluster.CreateNamespace(GinkgoT())
		lease := heldByB.lease(ctx, fencedLease, namespace, "writer")
		status := statusOf(lease)
		status["credentials"] = []any{fields{"term": termB}}
		for _, by := range []verb{byPut, byMergePatch, byMergePatchWithVersion} {
			Expect(causes(by.write(ctx, lease, status))).To(ContainElement("Required value"), by.name)
		}
		// An apply needs the key of the list before anything is validated.
		Expect(byApply.write(ctx, lease, status)).To(MatchError(ContainSubstring(`omits all key fields ["id"]`)))
		Expect(stored(ctx, lease).GetResourceVersion()).To(Equal(lease.GetResourceVersion()))
	})
})
