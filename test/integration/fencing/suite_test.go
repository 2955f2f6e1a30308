// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package fencing_test shows, on a real API server with the product installed as users install it, which writes to
// guarded objects pass and which are refused.
package fencing_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

var (
	cluster *env.Environment
	manager *product.Manager
	admin   client.Client
	gap     *env.AdmissionGap
	objects atomic.Int64
)

func TestFencing(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(60 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	suite, reporter := GinkgoConfiguration()
	reporter.Succinct = true
	RunSpecs(t, "Fencing", suite, reporter)
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	cluster, err = env.Start(ctx, env.Options{ControllerManager: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(cluster.Stop)
	manager, err = product.Start(ctx, cluster, GinkgoLogr)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return manager.Stop() })
	admin, err = env.Client(cluster.Config())
	Expect(err).NotTo(HaveOccurred())
	gap, err = cluster.StartReportGap(ctx, "reports", "reports/status", "reports/scale")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(gap.Close)
})

// story is a lease in a namespace of its own, with the tokens of two terms: A's has ended, B's is current.
type story struct {
	namespace string
	lease     *v1alpha1.FencedLease
	a, b      string
}

// tell creates the lease, lets A hold it and create n objects, and then lets B take over.
func tell(ctx context.Context, n int, mutations ...func(*v1alpha1.FencedLease)) (*story, []string) {
	GinkgoHelper()
	s := begin(ctx, mutations...)
	names := make([]string, n)
	for i := range names {
		names[i] = s.create(ctx, s.a)
	}
	s.takeOver(ctx)
	return s, names
}

// begin creates the lease and lets A hold it.
func begin(ctx context.Context, mutations ...func(*v1alpha1.FencedLease)) *story {
	GinkgoHelper()
	s := &story{namespace: cluster.CreateNamespace(GinkgoT())}
	s.lease = env.NewLease(s.namespace, "report-writer", mutations...)
	Expect(product.CreateLease(ctx, admin, s.lease)).To(Succeed())
	// The controller may write conditions in between.
	Eventually(func() error { return env.Acquire(ctx, admin, s.lease, "a") }).Should(Succeed())
	s.a = *s.lease.Status.Token
	if s.lease.Status.Seal == v1alpha1.SealRequired {
		s.awaitSealed(ctx)
	}
	return s
}

func (s *story) takeOver(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error { return env.Acquire(ctx, admin, s.lease, "b") }).Should(Succeed())
	s.b = *s.lease.Status.Token
}

func (s *story) create(ctx context.Context, token string, mutations ...func(*unstructured.Unstructured)) string {
	GinkgoHelper()
	report := env.NewReport(s.namespace, newName(), "first")
	s.mark(report, token)
	for _, mutate := range mutations {
		mutate(report)
	}
	Expect(admin.Create(ctx, report)).To(Succeed())
	return report.GetName()
}

// mark sets the annotation to a token that no write has used before, or leaves it if the token is empty.
func (s *story) mark(o *unstructured.Unstructured, token string) {
	if token == "" {
		return
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[s.key()] = fresh(token)
	o.SetAnnotations(annotations)
}

func (s *story) key() string { return v1alpha1.TokenKey(s.lease.Name) }

func (s *story) get(ctx context.Context, name string) *unstructured.Unstructured {
	GinkgoHelper()
	report := env.BareReport(s.namespace, name)
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(report), report)).To(Succeed())
	return report
}

func (s *story) value(ctx context.Context, name string) string {
	GinkgoHelper()
	value, _, err := unstructured.NestedString(s.get(ctx, name).Object, "spec", "value")
	Expect(err).NotTo(HaveOccurred())
	return value
}

// carrying returns the client of the same user whose requests carry a token.
func (s *story) carrying(token string) client.Client {
	GinkgoHelper()
	c, err := env.Client(s.carryingConfig(token))
	Expect(err).NotTo(HaveOccurred())
	return c
}

func (s *story) carryingConfig(token string) *rest.Config {
	config := cluster.Config()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "worker", Groups: []string{"system:masters"}, Extra: map[string][]string{s.key(): {token}},
	}
	return config
}

func newName() string { return "report-" + strconv.FormatInt(objects.Add(1), 10) }

// fresh gives a token an operation of its own, which is no business operation.
func fresh(token string) string { return token + "/_" + strconv.FormatInt(objects.Add(1), 10) }

// beFenced matches a refusal by the webhook with one of the causes.
func beFenced(causes ...string) types.GomegaMatcher {
	return Satisfy(func(err error) bool {
		status := apierrors.APIStatus(nil)
		if !asStatus(err, &status) || status.Status().Code != http.StatusForbidden || status.Status().Reason != v1alpha1.StatusReasonFenced {
			return false
		}
		details := status.Status().Details
		return details != nil && len(details.Causes) > 0 && slices.Contains(causes, string(details.Causes[0].Type))
	})
}

func asStatus(err error, target *apierrors.APIStatus) bool {
	status, ok := err.(apierrors.APIStatus)
	if ok {
		*target = status
	}
	return ok
}

// beRefusedByPolicy matches a refusal by the mark policy.
func beRefusedByPolicy() types.GomegaMatcher {
	return Satisfy(func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "must not fall or vanish")
	})
}

// beStale matches a refusal of a stale write, by the webhook or by the policy before it.
func beStale() types.GomegaMatcher { return Or(beFenced("StaleToken"), beRefusedByPolicy()) }

func describe(err error) string { return fmt.Sprintf("%+v", err) }

// warningRecorder keeps the warnings that a client gets.
type warningRecorder struct {
	mu       sync.Mutex
	warnings []string
}

func (w *warningRecorder) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warnings = append(w.warnings, text)
}

func (w *warningRecorder) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.warnings)
}

func fmtToken(generation int64) string { return fresh(strconv.FormatInt(generation, 10) + ".zzzzzzzz") }
