// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package operations_test shows, on a real API server with the product installed as users install it, that an operation is
// applied to a guarded object once and recorded with it.
package operations_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
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
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/operation"
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

func TestOperations(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(60 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	suite, reporter := GinkgoConfiguration()
	reporter.Succinct = true
	RunSpecs(t, "Operations", suite, reporter)
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
	gap, err = cluster.StartReportGap(ctx, "reports")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(gap.Close)
})

// story is a lease in a namespace of its own, which somebody holds.
type story struct {
	namespace string
	lease     *v1alpha1.FencedLease
}

func begin(ctx context.Context, mutations ...func(*v1alpha1.FencedLease)) *story {
	GinkgoHelper()
	s := &story{namespace: cluster.CreateNamespace(GinkgoT())}
	s.lease = s.another(ctx, "report-writer", mutations...)
	return s
}

// another creates a lease in the namespace of the story and lets A hold it.
func (s *story) another(ctx context.Context, name string, mutations ...func(*v1alpha1.FencedLease)) *v1alpha1.FencedLease {
	GinkgoHelper()
	lease := env.NewLease(s.namespace, name, mutations...)
	Expect(product.CreateLease(ctx, admin, lease)).To(Succeed())
	take(ctx, lease, "a")
	return lease
}

func take(ctx context.Context, lease *v1alpha1.FencedLease, holder string) {
	GinkgoHelper()
	Eventually(func() error { return env.Acquire(ctx, admin, lease, holder) }).Should(Succeed())
}

func limited(limit int32) func(*v1alpha1.FencedLease) {
	return func(l *v1alpha1.FencedLease) { l.Spec.Guards[0].OperationHistoryLimit = &limit }
}

// token is the token of the current term with an operation.
func (s *story) token(id string) string { return *s.lease.Status.Token + "/" + id }

// nonce is a token of the current term that names no business operation.
func (s *story) nonce() string { return s.token("_" + strconv.FormatInt(objects.Add(1), 10)) }

func (s *story) key() string { return v1alpha1.TokenKey(s.lease.Name) }

func (s *story) records(ctx context.Context, name string) string {
	GinkgoHelper()
	return s.get(ctx, name).GetAnnotations()[v1alpha1.OperationsKey(s.lease.Name)]
}

// ids are the operations that an object records, newest first, each of them with the generation and its time.
func (s *story) ids(ctx context.Context, name string) []string {
	GinkgoHelper()
	records, err := operation.Parse(s.records(ctx, name))
	Expect(err).NotTo(HaveOccurred())
	ids := []string{}
	for _, r := range records {
		ids = append(ids, r.Operation)
	}
	return ids
}

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

// create creates an object under the current term, without a business operation.
func (s *story) create(ctx context.Context) string {
	GinkgoHelper()
	report := s.report(newName(), "first", s.nonce())
	Expect(admin.Create(ctx, report)).To(Succeed())
	return report.GetName()
}

func (s *story) report(name, value, token string) *unstructured.Unstructured {
	report := env.NewReport(s.namespace, name, value)
	if token != "" {
		report.SetAnnotations(map[string]string{s.key(): token})
	}
	return report
}

// carrying returns the client of a user whose requests carry a token.
func (s *story) carrying(token string) client.Client {
	GinkgoHelper()
	config := cluster.Config()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "worker", Groups: []string{"system:masters"}, Extra: map[string][]string{s.key(): {token}},
	}
	c, err := env.Client(config)
	Expect(err).NotTo(HaveOccurred())
	return c
}

func newName() string { return "report-" + strconv.FormatInt(objects.Add(1), 10) }

// beFenced matches a refusal by the webhook for a reason, with a record that begins with a text, or none if it is empty.
func beFenced(reason, record string) types.GomegaMatcher {
	return Satisfy(func(err error) bool {
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != http.StatusForbidden || status.Status().Reason != v1alpha1.StatusReasonFenced || status.Status().Details == nil {
			return false
		}
		causes := status.Status().Details.Causes
		switch {
		case len(causes) == 0 || string(causes[0].Type) != reason:
			return false
		case record == "":
			return len(causes) == 1
		default:
			return len(causes) == 2 && causes[1].Type == v1alpha1.CauseOperationRecord && strings.HasPrefix(causes[1].Message, record)
		}
	})
}

// beRefusedByPolicy matches a refusal of the mark policy to change the record of the story's lease.
func beRefusedByPolicy() types.GomegaMatcher {
	return Satisfy(func(err error) bool {
		refusal, ok := fenced.Cause(err)
		return ok && fenced.IsFenced(err) && refusal.Type == fenced.RecordTampered && refusal.Lease.Name == "report-writer"
	})
}
