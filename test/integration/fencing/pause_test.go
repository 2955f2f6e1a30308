// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fencing_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/test/env"
)

// What becomes of every write that pauses at any step of its way is in test/robustness/pause. Here are the means by which
// other stories pause a write.

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
	Expect(admin.Patch(ctx, env.BareReport(s.namespace, name), client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
}
