// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package e2e shows FencedLease as its users run it: the image, the manifests and the roles as they are shipped, in pods on a
// real node. make test-e2e runs it.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/test/env"
)

const (
	system     = "fencedlease-system"
	deployment = "fencedlease-controller-manager"
	root       = "../.."

	patience = 90 * time.Second
	poll     = 100 * time.Millisecond
)

// The cluster, and its administrator. They are set once, before the first spec.
var (
	cluster provider
	config  *rest.Config
	admin   client.Client
	kube    kubernetes.Interface
)

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(poll)
	SetDefaultConsistentlyPollingInterval(poll)
	suite, reporter := GinkgoConfiguration()
	RunSpecs(t, "FencedLease on a real node", suite, reporter)
}

var _ = BeforeSuite(func() {
	var err error
	cluster, err = newProvider()
	Expect(err).NotTo(HaveOccurred())
	config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	Expect(err).NotTo(HaveOccurred())
	config.QPS, config.Timeout = -1, 20*time.Second
	admin, err = env.Client(config)
	Expect(err).NotTo(HaveOccurred())
	kube, err = kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
})

// One after the other, on one installation: what a spec needs, an earlier one has shown.
var _ = Describe("FencedLease, installed", Ordered, ContinueOnFailure, func() {
	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			tellState(ctx)
		}
	})
	installSpecs()
	securitySpecs()
	storySpecs()
	availabilitySpecs()
	certManagerSpecs()
	lifecycleSpecs()
})

// kubectl runs kubectl in the root of the module and returns what it prints.
func kubectl(ctx context.Context, args ...string) (string, error) {
	return kubectlWith(ctx, "", args...)
}

func kubectlWith(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, os.Getenv("KUBECTL"), args...)
	cmd.Dir = root
	cmd.Stdin = strings.NewReader(input)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errOut.String())
	}
	return out.String() + errOut.String(), nil
}

func mustKubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := kubectl(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

// install installs as the README says, or puts everything back to what is shipped.
func install(ctx context.Context) {
	GinkgoHelper()
	mustKubectl(ctx, "apply", "--server-side", "--force-conflicts", "-k", "config/default")
	awaitManagers(ctx, 2)
}

// awaitManagers returns when so many managers are ready, all of them as the Deployment now is, and no other is there.
func awaitManagers(ctx context.Context, replicas int) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		d := &appsv1.Deployment{}
		if err := admin.Get(ctx, client.ObjectKey{Namespace: system, Name: deployment}, d); err != nil {
			return err
		}
		pods, err := managers(ctx)
		if err != nil {
			return err
		}
		s := d.Status
		if want := int32(replicas); s.ObservedGeneration < d.Generation || s.UpdatedReplicas != want || s.ReadyReplicas != want || s.AvailableReplicas != want ||
			s.Replicas != want || len(pods) != replicas {
			return fmt.Errorf("%d pods, %+v", len(pods), s)
		}
		return nil
	}).Should(Succeed())
}

// managers returns the manager's pods.
func managers(ctx context.Context) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := admin.List(ctx, pods, client.InNamespace(system), client.MatchingLabels{"control-plane": "controller-manager"})
	return pods.Items, err
}

// containerOf returns the id of a pod's only container.
func containerOf(pod *corev1.Pod) (string, error) {
	if len(pod.Status.ContainerStatuses) != 1 {
		return "", errors.New("the pod " + pod.Name + " shows no container")
	}
	_, id, found := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	if !found {
		return "", errors.New("the container of pod " + pod.Name + " has no id")
	}
	return id, nil
}

// account returns the configuration of a service account that is there.
func account(ctx context.Context, namespace, name string) *rest.Config {
	GinkgoHelper()
	token, err := kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	c := rest.AnonymousClientConfig(config)
	c.BearerToken, c.QPS, c.Timeout = token.Status.Token, -1, config.Timeout
	return c
}

// tellState prints what may explain a failure.
func tellState(ctx context.Context) {
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"},
		{"get", "fencedleases", "-A", "-o", "yaml"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"-n", system, "logs", "-l", "control-plane=controller-manager", "--tail=60", "--prefix"},
	} {
		out, err := kubectl(ctx, args...)
		GinkgoWriter.Println("$ kubectl", strings.Join(args, " "), "\n", out, err)
	}
}

// figure reports a number that the specs measure.
func figure(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	AddReportEntry("figure: "+text, ReportEntryVisibilityNever)
	_, _ = fmt.Fprintln(os.Stderr, "figure:", text)
}
