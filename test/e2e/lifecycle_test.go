// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/test/env"
)

// registered are the names of what could block a write.
func registered(ctx context.Context) error {
	out, err := kubectl(ctx, "get", "validatingwebhookconfigurations,mutatingwebhookconfigurations,validatingadmissionpolicies,"+
		"mutatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicybindings", "-o", "name")
	if err == nil && strings.Contains(out, "fencedlease") {
		return errors.New("left: " + out)
	}
	return err
}

func gone(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Eventually(ctx, func() bool { return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(object), object)) }).Should(BeTrue())
}

func lifecycleSpecs() {
	var highest int64
	removeNamespace := []string{"delete", "namespace", system, "--ignore-not-found", "--timeout=120s"}
	removeDefinition := []string{"delete", "crd", "fencedleases.coordination.fencedlease.io", "--ignore-not-found", "--timeout=60s"}
	removeAll := []string{"delete", "--ignore-not-found", "-k", "config/default", "--timeout=120s"}
	for _, c := range []struct {
		name  string
		order [][]string
	}{
		{"by make undeploy's command", [][]string{removeAll}},
		{"the namespace first, then the definition, then the rest", [][]string{removeNamespace, removeDefinition, removeAll}},
		{"the definition first, while the managers run, then the rest", [][]string{removeDefinition, removeAll}},
	} {
		It("leaves nothing that blocks when it is uninstalled "+c.name+", and generations go on rising afterwards", func(ctx SpecContext) {
			install(ctx)
			g := useExamples(ctx)
			term := g.acquire(ctx, "a")
			Expect(generationOf(term)).To(BeNumerically(">", highest), "after the last uninstallation")
			highest = generationOf(term)
			mustCreateIn(ctx, term, "daily")
			begin := time.Now()
			for _, step := range c.order {
				mustKubectl(ctx, step...)
			}
			Eventually(ctx, registered).Should(Succeed())
			Eventually(ctx, func() error {
				_, err := kubectl(ctx, "-n", "reports", "patch", "reports", "daily", "--type=merge", "-p", `{"spec":{"value":"free"}}`)
				return err
			}).Should(Succeed(), "a write without a token")
			figure("uninstalled %s: free after %.1f s", c.name, time.Since(begin).Seconds())
			// What was marked stays marked: the next installation starts above it.
			_, mark, err := storedReport(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(parse(mark).Generation).To(Equal(highest))
		}, SpecTimeout(4*time.Minute))
	}

	It("heals by a new apply when the manager's namespace was deleted by force", func(ctx SpecContext) {
		install(ctx)
		g := useExamples(ctx)
		term := g.acquire(ctx, "a")
		mustCreateIn(ctx, term, "daily")
		mustKubectl(ctx, "-n", system, "delete", "pods", "--all", "--force", "--grace-period=0")
		mustKubectl(ctx, "delete", "namespace", system, "--force", "--grace-period=0", "--timeout=120s")
		gone(ctx, &corev1.Namespace{ObjectMeta: env.NewLease("", system).ObjectMeta})
		err := write(ctx, admin, term, "daily", "down")
		Expect(unavailable(err)).To(BeTrue(), "%v", err)
		begin := time.Now()
		install(ctx)
		Eventually(ctx, func() error { return write(ctx, admin, term, "daily", "healed") }).Should(Succeed())
		figure("namespace deleted by force: healed %.1f s after the new apply", time.Since(begin).Seconds())
		next := g.acquire(ctx, "b")
		Expect(generationOf(next)).To(Equal(generationOf(term)+1), "the lease was not lost")
	}, SpecTimeout(4*time.Minute))
}
