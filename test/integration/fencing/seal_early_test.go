// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fencing_test

import (
	"context"
	"net/http"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/test/env"
)

// answers sees the answers to a client's requests.
type answers struct {
	next http.RoundTripper
	// hide keeps from the client that it should try again.
	hide  bool
	early atomic.Int64
}

func (a *answers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") == "1" {
		a.early.Add(1)
	}
	if a.hide {
		response.Header.Del("Retry-After")
	}
	return response, nil
}

// watched returns the client of a configuration, and what is seen of its answers.
func watched(config *rest.Config, hide bool) (client.Client, *answers) {
	GinkgoHelper()
	seen := &answers{hide: hide}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { seen.next = next; return seen })
	c, err := env.Client(config)
	Expect(err).NotTo(HaveOccurred())
	return c, seen
}

// beEarly matches the answer to a write whose term is not sealed.
func beEarly() types.GomegaMatcher {
	return Satisfy(func(err error) bool {
		status := apierrors.APIStatus(nil)
		if !asStatus(err, &status) || !apierrors.IsServiceUnavailable(err) {
			return false
		}
		details := status.Status().Details
		return details != nil && details.RetryAfterSeconds == 1 && len(details.Causes) == 1 &&
			string(details.Causes[0].Type) == string(fence.SealPending)
	})
}

var _ = Describe("A holder that does not wait for its seal", func() {
	// stamping holds up the stamps of the story's objects while B takes over.
	stamping := func(ctx context.Context, s *story) (release func()) {
		hold := s.holdStamps()
		DeferCleanup(hold.Release)
		s.takeOver(ctx)
		Eventually(hold.Entered()).Should(Receive())
		return hold.Release
	}

	It("can write nothing until then, by no verb and no carrier, and is told so", func(ctx SpecContext) {
		s := begin(ctx, bySeal)
		name := s.create(ctx, s.a)
		release := stamping(ctx, s)
		defer release()
		before := s.get(ctx, name)
		byAnnotation, _ := watched(cluster.Config(), true)
		byRequest, _ := watched(s.carryingConfig(s.b), true)
		for _, w := range writes() {
			target := name
			if w.creates {
				target = newName()
			}
			if w.name == "deletecollection" {
				continue // it deletes by a label, which would have to be written first
			}
			if !w.byRequestOnly {
				Expect(w.do(ctx, byAnnotation, s, target, fresh(s.b))).To(beEarly(), "%s by annotation", w.name)
			}
			Expect(w.do(ctx, byRequest, s, target, "")).To(beEarly(), "%s by request", w.name)
		}
		Expect(s.get(ctx, name).Object).To(Equal(before.Object))
	})

	It("need not care: client-go tries again by itself", func(ctx SpecContext) {
		s := begin(ctx, bySeal)
		name := s.create(ctx, s.a)
		release := stamping(ctx, s)
		defer release()
		c, seen := watched(s.carryingConfig(s.b), false)
		done := make(chan error, 1)
		go func() { done <- writes()[6].do(ctx, c, s, name, "") }()
		Eventually(seen.early.Load).Should(BeNumerically(">", 0))
		Expect(done).NotTo(Receive())
		release()
		s.awaitSealed(ctx)
		Eventually(done).Should(Receive(Succeed()))
		Expect(s.get(ctx, name).Object["status"]).To(HaveKeyWithValue("phase", "Done"))
	})
})
