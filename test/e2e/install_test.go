// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

// guarded is a lease with its guards in force, and its terms so far.
type guarded struct {
	lease *v1alpha1.FencedLease
}

// newGuarded creates a lease that guards the reports of a new namespace, and returns when that is in force.
func newGuarded(ctx context.Context, namespace string) *guarded {
	GinkgoHelper()
	Eventually(ctx, func() error {
		err := admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		return client.IgnoreAlreadyExists(err)
	}).Should(Succeed())
	g := &guarded{}
	Eventually(ctx, func() error {
		g.lease = env.NewLease(namespace, "report-writer")
		return client.IgnoreAlreadyExists(admin.Create(ctx, g.lease))
	}).Should(Succeed())
	g.awaitReady(ctx)
	return g
}

func (g *guarded) awaitReady(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(g.lease), g.lease); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(g.lease.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != g.lease.Generation {
			return fmt.Errorf("the lease is not ready: %+v", ready)
		}
		return nil
	}).Should(Succeed())
}

// acquire takes the lease for a holder and returns its term.
func (g *guarded) acquire(ctx context.Context, holder string) *v1alpha1.FencedLease {
	GinkgoHelper()
	Eventually(ctx, func() error { return env.Acquire(ctx, admin, g.lease, holder) }).Should(Succeed())
	return g.lease.DeepCopy()
}

// write writes a report once, under a term.
func write(ctx context.Context, c client.Client, term *v1alpha1.FencedLease, report, operation string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"value":%q}}`,
		v1alpha1.TokenKey(term.Name), env.Token(term, operation), operation)
	return c.Patch(ctx, env.NewReport(term.Namespace, report, ""), client.RawPatch(types.MergePatchType, patch))
}

func create(ctx context.Context, c client.Client, term *v1alpha1.FencedLease, report string) error {
	object := env.NewReport(term.Namespace, report, "first")
	object.SetAnnotations(map[string]string{v1alpha1.TokenKey(term.Name): env.Token(term, "0")})
	return c.Create(ctx, object)
}

// mustCreate creates a report, as soon as an API server knows its kind well enough.
func mustCreate(ctx context.Context, term *v1alpha1.FencedLease, report string) {
	GinkgoHelper()
	Eventually(ctx, func() error { return create(ctx, admin, term, report) }).Should(Succeed())
}

// fenced tells whether a write was refused by the fence, for whatever cause.
func fenced(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && string(status.Status().Reason) == v1alpha1.StatusReasonFenced
}

func isFenced(err error, cause string) bool {
	var status apierrors.APIStatus
	return fenced(err) && errors.As(err, &status) && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return string(c.Type) == cause })
}

func installSpecs() {
	It("goes from an empty cluster to the first refused stale write by one command", func(ctx SpecContext) {
		begin := time.Now()
		since := func() string { return fmt.Sprintf("%.1f s", time.Since(begin).Seconds()) }
		out := mustKubectl(ctx, "apply", "--server-side", "-k", "config/default")
		applied := since()
		Expect(out).NotTo(ContainSubstring("Warning"), "the manifests obey what the namespace demands")
		Expect(admin.Create(ctx, env.ReportCRD())).To(Succeed())
		Expect(admin.Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "guarded-reports", Labels: map[string]string{"rbac.fencedlease.io/aggregate-to-guarded-kinds": "true"}},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{env.GuardedGroup}, Resources: []string{"reports", "reports/scale"}, Verbs: []string{"get", "list", "patch"}}},
		})).To(Succeed())
		g := newGuarded(ctx, "first")
		ready := since()
		a := g.acquire(ctx, "a")
		mustCreate(ctx, a, "daily")
		b := g.acquire(ctx, "b")
		Expect(write(ctx, admin, b, "daily", "1")).To(Succeed())
		err := write(ctx, admin, a, "daily", "late")
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		figure("install: applied after %s, the first guard in force after %s, the first stale write refused after %s", applied, ready, since())
		By("a stale write that only the lease can tell from a current one")
		c := g.acquire(ctx, "c")
		err = write(ctx, admin, b, "daily", "late")
		Expect(isFenced(err, "StaleToken")).To(BeTrue(), "%v", err)
		Expect(err.Error()).To(ContainSubstring("report-writer"))
		Expect(write(ctx, admin, c, "daily", "2")).To(Succeed())
		awaitManagers(ctx, 2)
		figure("install: two managers available after %s", since())
	}, SpecTimeout(3*time.Minute))

	It("takes its samples", func(ctx SpecContext) {
		mustKubectl(ctx, "apply", "--server-side", "-k", "config/samples")
		leases := &v1alpha1.FencedLeaseList{}
		Eventually(ctx, func() error {
			if err := admin.List(ctx, leases, client.InNamespace("reports")); err != nil {
				return err
			}
			for _, lease := range leases.Items {
				if lease.Status.GenerationFloor == nil {
					return fmt.Errorf("%s has no floor", lease.Name)
				}
			}
			return nil
		}).Should(Succeed())
		Expect(len(leases.Items)).To(BeNumerically(">=", 6))
		mustKubectl(ctx, "delete", "-k", "config/samples", "--timeout=60s")
	}, SpecTimeout(2*time.Minute))
}

// unavailable tells whether a write was not decided.
func unavailable(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 500
}

func generationOf(lease *v1alpha1.FencedLease) int64 { return ptr.Deref(lease.Status.Generation, 0) }
