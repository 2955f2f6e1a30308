// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
)

// told is what a worker prints (test/e2e/worker).
type told struct {
	Event, Token, Value, Reason, Message string
	Code                                 int32
}

// worker is a pod that leads, with the rights of examples/reports.yaml.
type worker struct{ pod *corev1.Pod }

func startWorker(ctx context.Context, name string, args ...string) *worker {
	GinkgoHelper()
	w := &worker{&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "reports", Name: name},
		Spec: corev1.PodSpec{
			ServiceAccountName: "report-worker", RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](5),
			Containers: []corev1.Container{{
				Name: "worker", Image: os.Getenv("E2E_WORKER_IMAGE"), Args: args, ImagePullPolicy: corev1.PullNever,
				Env: []corev1.EnvVar{{Name: "POD_NAME", Value: name}},
			}},
		},
	}}
	Eventually(ctx, func() error { return client.IgnoreAlreadyExists(admin.Create(ctx, w.pod)) }).Should(Succeed())
	Eventually(ctx, func() (corev1.PodPhase, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(w.pod), w.pod)
		return w.pod.Status.Phase, err
	}).ShouldNot(Equal(corev1.PodPending))
	return w
}

func (w *worker) container() string {
	GinkgoHelper()
	id, err := containerOf(w.pod)
	Expect(err).NotTo(HaveOccurred())
	return id
}

// told returns the events of one kind that the worker has printed so far.
func (w *worker) told(ctx context.Context, event string) ([]told, error) {
	stream, err := kube.CoreV1().Pods(w.pod.Namespace).GetLogs(w.pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	var all []told
	lines := bufio.NewScanner(stream)
	for lines.Scan() {
		var t told
		if json.Unmarshal(lines.Bytes(), &t) == nil && t.Event == event {
			all = append(all, t)
		}
	}
	return all, lines.Err()
}

// awaitTold returns the first event of a kind.
func (w *worker) awaitTold(ctx context.Context, event string) told {
	GinkgoHelper()
	var first told
	Eventually(ctx, func() error {
		all, err := w.told(ctx, event)
		if err == nil && len(all) == 0 {
			err = errors.New(w.pod.Name + " has told of nothing " + event)
		}
		if err != nil {
			return err
		}
		first = all[0]
		return nil
	}).Should(Succeed())
	return first
}

// storedReport is the value and the mark of the report that workers write.
func storedReport(ctx context.Context) (value, mark string, err error) {
	report := &unstructured.Unstructured{}
	report.SetGroupVersionKind(env.ReportKind(env.ReportVersion))
	if err := admin.Get(ctx, client.ObjectKey{Namespace: "reports", Name: "daily"}, report); err != nil {
		return "", "", err
	}
	value, _, err = unstructured.NestedString(report.Object, "spec", "value")
	return value, report.GetAnnotations()[v1alpha1.TokenKey("report-writer")], err
}

// useExamples applies the lease and the roles of examples/, with a short lease.
func useExamples(ctx context.Context) *guarded {
	GinkgoHelper()
	// A namespace that is going takes nothing.
	Eventually(ctx, func() error {
		_, err := kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-f", "examples/crds.yaml", "-f", "examples/reports.yaml")
		return err
	}).Should(Succeed())
	mustKubectl(ctx, "-n", "reports", "patch", "fencedlease", "report-writer", "--type=merge", "-p", `{"spec":{"leaseDurationSeconds":5}}`)
	g := &guarded{lease: env.NewLease("reports", "report-writer")}
	g.awaitReady(ctx)
	return g
}

func storySpecs() {
	It("refuses a leader whose pod was frozen, with real pods", func(ctx SpecContext) {
		useExamples(ctx)
		a := startWorker(ctx, "worker-a")
		underA := a.awaitTold(ctx, "leading")
		a.awaitTold(ctx, "accepted")

		By("freezing the pod of A")
		Expect(cluster.pause(ctx, a.container())).To(Succeed())
		thaw := func(ctx context.Context) error { return cluster.resume(ctx, a.container()) }
		thawed := false
		DeferCleanup(func(ctx SpecContext) {
			if !thawed {
				_ = thaw(ctx)
			}
		})
		frozen := time.Now()
		b := startWorker(ctx, "worker-b")
		underB := b.awaitTold(ctx, "leading")
		b.awaitTold(ctx, "accepted")
		takeover := time.Since(frozen)
		first, second := parse(underA.Token), parse(underB.Token)
		Expect(second.Generation).To(BeNumerically(">", first.Generation))

		By("letting A go on")
		Expect(thaw(ctx)).To(Succeed())
		thawed = true
		resumed := time.Now()
		refused := a.awaitTold(ctx, "refused")
		figure("story: B wrote %.1f s after A was frozen (lease of 5 s); A was refused within %.1f s after it went on", takeover.Seconds(), time.Since(resumed).Seconds())
		Expect(refused.Token).To(Equal(underA.Token))
		Expect(refused.Code).To(BeEquivalentTo(403))
		GinkgoWriter.Println("A was told:", refused.Message)
		Consistently(ctx, func() error {
			value, mark, err := storedReport(ctx)
			if err == nil && (!strings.HasPrefix(value, "worker-b ") || parse(mark).Generation != second.Generation) {
				err = fmt.Errorf("the report is %q, its mark %s", value, mark)
			}
			return err
		}).WithTimeout(2 * time.Second).Should(Succeed())

		By("counting what A believed to have written after B's first write")
		accepted, err := a.told(ctx, "accepted")
		Expect(err).NotTo(HaveOccurred())
		for _, t := range accepted {
			Expect(t.Token).To(Equal(underA.Token))
		}
		Expect(admin.Delete(ctx, a.pod)).To(Succeed())
		Expect(admin.Delete(ctx, b.pod)).To(Succeed())
	}, SpecTimeout(3*time.Minute))

	It("keeps pods of other namespaces away from its ports, where policies are enforced", func(ctx SpecContext) {
		if !cluster.enforcesPolicies() {
			Skip("the network plugin of this provider enforces no policies")
		}
		pods, err := managers(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).NotTo(BeEmpty())
		for port, want := range map[string]corev1.PodPhase{"9443": corev1.PodSucceeded, "8443": corev1.PodFailed, "8081": corev1.PodFailed} {
			w := startWorker(ctx, "dial-"+port, "dial", pods[0].Status.PodIP+":"+port)
			Eventually(ctx, func() (corev1.PodPhase, error) {
				err := admin.Get(ctx, client.ObjectKeyFromObject(w.pod), w.pod)
				return w.pod.Status.Phase, err
			}).Should(Equal(want), "port %s", port)
			Expect(admin.Delete(ctx, w.pod)).To(Succeed())
		}
	}, SpecTimeout(2*time.Minute))
}

func parse(text string) token.Token {
	GinkgoHelper()
	t, err := token.Parse(text)
	Expect(err).NotTo(HaveOccurred())
	return t
}
