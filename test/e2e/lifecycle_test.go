// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
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

// previousManifests returns the manifests of the previous state, or skips.
func previousManifests() string {
	GinkgoHelper()
	manifests := os.Getenv("E2E_PREVIOUS_MANIFESTS")
	if manifests == "" {
		const why = "the previous state is not known: git has no commit before this one, or fetches none"
		if os.Getenv("E2E_REQUIRE_PREVIOUS") == "yes" {
			Fail(why)
		}
		Skip(why)
	}
	return manifests
}

// stored returns uid, spec and generations of all leases, without what only the newer definition has.
func stored(ctx context.Context) map[string]string {
	GinkgoHelper()
	leases := &v1alpha1.FencedLeaseList{}
	Expect(admin.List(ctx, leases)).To(Succeed())
	found := map[string]string{}
	for i := range leases.Items {
		lease := &leases.Items[i]
		for j := range lease.Spec.Guards {
			lease.Spec.Guards[j].OperationHistoryLimit = nil
		}
		spec, err := json.Marshal(lease.Spec)
		Expect(err).NotTo(HaveOccurred())
		found[lease.Namespace+"/"+lease.Name] = fmt.Sprintf("%s %s %d %s", lease.UID, spec, generationOf(lease), ptr.Deref(lease.Status.Token, ""))
	}
	return found
}

// limited tells whether the definition has the field operationHistoryLimit, and whether the lease says something there.
func limited(ctx context.Context, g *guarded) (defined, set bool) {
	GinkgoHelper()
	definition := mustKubectl(ctx, "get", "crd", "fencedleases.coordination.fencedlease.io", "-o", "jsonpath={.spec.versions}")
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(g.lease), g.lease)).To(Succeed())
	return strings.Contains(definition, `"operationHistoryLimit"`), g.lease.Spec.Guards[0].OperationHistoryLimit != nil
}

func lifecycleSpecs() {
	var highest int64
	removeNamespace := []string{"delete", "namespace", system, "--ignore-not-found", "--timeout=120s"}
	removeDefinition := []string{"delete", "crd", "fencedleases.coordination.fencedlease.io", "--ignore-not-found", "--timeout=60s"}
	removeAll := []string{"delete", "--ignore-not-found", "-k", "config/default", "--timeout=120s"}
	It("is upgraded from the previous state without a failed write, and back with none that is stale", func(ctx SpecContext) {
		manifests := previousManifests()
		mustKubectl(ctx, removeAll...)
		Eventually(ctx, registered).Should(Succeed())
		// What is being deleted cannot be applied yet.
		Eventually(ctx, func() error {
			_, err := kubectl(ctx, "apply", "--server-side", "-f", manifests)
			return err
		}).Should(Succeed())
		awaitManagers(ctx, 2)
		image := func(ctx context.Context) string {
			return mustKubectl(ctx, "-n", system, "get", "deployment", deployment, "-o", "jsonpath={.spec.template.spec.containers[0].image}")
		}
		Expect(image(ctx)).To(Equal(os.Getenv("E2E_PREVIOUS_IMAGE")))
		g := useExamples(ctx)
		definedBefore, _ := limited(ctx, g)

		By("upgrading by the command of the installation")
		upgrade := []string{"apply", "--server-side", "-k", "config/default"}
		l := startLoad(ctx, g)
		l.more(ctx, 50)
		before := stored(ctx)
		begin := time.Now()
		mustKubectl(ctx, upgrade...)
		awaitManagers(ctx, 2)
		Expect(image(ctx)).NotTo(Equal(os.Getenv("E2E_PREVIOUS_IMAGE")))
		g.awaitReady(ctx)
		took := time.Since(begin)
		l.more(ctx, 100)
		Expect(stored(ctx)).To(Equal(before), "leases are held as before, and their specs are what they were")
		Expect(l.end(fmt.Sprintf("upgrade (%.1f s until the last old pod was gone)", took.Seconds()))).To(BeEmpty())

		By("using what only the newer version has")
		mustKubectl(ctx, "-n", "reports", "patch", "fencedlease", "report-writer", "--type=json", "-p",
			`[{"op":"add","path":"/spec/guards/0/operationHistoryLimit","value":8}]`)
		g.awaitReady(ctx)
		_, set := limited(ctx, g)
		Expect(set).To(BeTrue())
		c := g.acquire(ctx, "c")
		mustCreateIn(ctx, c, "kept")
		Expect(write(ctx, admin, c, "kept", "kept-1")).To(Succeed())

		By("going back by the same command with the old manifests")
		l = startLoad(ctx, g)
		l.more(ctx, 50)
		before = stored(ctx)
		mustKubectl(ctx, "apply", "--server-side", "-f", manifests)
		awaitManagers(ctx, 2)
		g.awaitReady(ctx)
		l.more(ctx, 100)
		Expect(stored(ctx)).To(Equal(before))
		for _, f := range l.end("downgrade") {
			Expect(unavailable(f.err)).To(BeTrue(), "%v", f.err)
		}
		defined, set := limited(ctx, g)
		Expect(defined).To(Equal(definedBefore))
		Expect(set).To(Equal(defined), "what the definition does not have is not there")

		By("upgrading again, first the definition alone, under the old managers")
		l = startLoad(ctx, g)
		l.more(ctx, 50)
		before = stored(ctx)
		mustKubectl(ctx, "apply", "--server-side", "-k", "config/crd")
		l.more(ctx, 100)
		Expect(stored(ctx)).To(Equal(before))
		mustKubectl(ctx, upgrade...)
		awaitManagers(ctx, 2)
		g.awaitReady(ctx)
		l.more(ctx, 100)
		Expect(stored(ctx)).To(Equal(before))
		defined, set = limited(ctx, g)
		Expect(defined).To(BeTrue())
		Expect(set).To(Equal(definedBefore), "what was dropped when the lease was written does not come back")
		Expect(l.end(fmt.Sprintf("upgrade, the definition first (which has changed: %t)", !definedBefore))).To(BeEmpty())
		next := g.acquire(ctx, "c")
		mustCreateIn(ctx, next, "daily")
		err := write(ctx, admin, next, "kept", "kept-1")
		Expect(isFenced(err, "AlreadyApplied")).To(BeTrue(), "what was recorded before the way back: %v", err)
	}, SpecTimeout(8*time.Minute))

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
