// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func securitySpecs() {
	It("runs under the restricted Pod Security standard", func(ctx SpecContext) {
		loose := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "loose"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "loose", Image: "any"}}},
		}
		err := admin.Create(ctx, loose, client.DryRunAll)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "the standard is enforced: %v", err)
		Expect(err).To(MatchError(ContainSubstring(`violates PodSecurity "restricted:latest"`)))
		pods, err := managers(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).To(HaveLen(2))
		for _, pod := range pods {
			Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
			// What the process is, not what the manifest asks for. Old container runtimes do not say.
			if user := pod.Status.ContainerStatuses[0].User; user != nil {
				Expect(user.Linux.UID).NotTo(BeZero())
			}
		}
	})

	It("has network policies for exactly the ports that its Services name", func(ctx SpecContext) {
		d := &appsv1.Deployment{}
		Expect(admin.Get(ctx, client.ObjectKey{Namespace: system, Name: deployment}, d)).To(Succeed())
		numbers := map[string]int32{}
		for _, port := range d.Spec.Template.Spec.Containers[0].Ports {
			numbers[port.Name] = port.ContainerPort
		}
		services := &corev1.ServiceList{}
		Expect(admin.List(ctx, services, client.InNamespace(system))).To(Succeed())
		served := map[int32]bool{}
		for _, service := range services.Items {
			for _, port := range service.Spec.Ports {
				number := port.TargetPort.IntVal
				if port.TargetPort.Type == intstr.String {
					number = numbers[port.TargetPort.StrVal]
				}
				Expect(number).NotTo(BeZero(), "port %s of Service %s", port.Name, service.Name)
				served[number] = true
			}
		}
		policies := &networkingv1.NetworkPolicyList{}
		Expect(admin.List(ctx, policies, client.InNamespace(system))).To(Succeed())
		allowed := map[int32]bool{}
		for _, policy := range policies.Items {
			selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
			Expect(err).NotTo(HaveOccurred())
			Expect(selector.String()).To(Equal(metav1.FormatLabelSelector(d.Spec.Selector)), "policy %s", policy.Name)
			for _, rule := range policy.Spec.Ingress {
				for _, port := range rule.Ports {
					allowed[port.Port.IntVal] = true
				}
			}
		}
		Expect(allowed).To(Equal(served))
		Expect(allowed).NotTo(HaveKey(numbers["health"]))
	})

	It("shows its metrics to those who may read them, and to nobody else", func(ctx SpecContext) {
		for _, name := range []string{"scraper", "stranger"} {
			Expect(admin.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})).To(Succeed())
		}
		Expect(admin.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "scraper"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "fencedlease-metrics-reader"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "scraper"}},
		})).To(Succeed())
		scrape := scraper(ctx, "service/fencedlease-controller-manager-metrics-service", "8443")
		Expect(scrape("")).To(Equal(http.StatusUnauthorized), "nobody")
		Expect(scrape("unknown")).To(Equal(http.StatusUnauthorized), "a token that nobody knows")
		Expect(scrape(account(ctx, "default", "stranger").BearerToken)).To(Equal(http.StatusForbidden), "who may not")
		Eventually(ctx, scrape).WithArguments(account(ctx, "default", "scraper").BearerToken).Should(Equal(http.StatusOK), "who may")
	}, SpecTimeout(time.Minute))
}

// scraper returns a function that gets the metrics with a token and returns the code of the answer. It trusts the manager's own
// authority, as in its Secret, and no other. kubectl gives up forwarding when a server ends a connection that it has not read
// to its end, as one does that refuses, so every request has a port of its own and is made again if that was too late for it.
func scraper(ctx context.Context, target, port string) func(token string) int {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(admin.Get(ctx, client.ObjectKey{Namespace: system, Name: "fencedlease-webhook-cert"}, secret)).To(Succeed())
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(secret.Data["ca.crt"])).To(BeTrue())
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: "fencedlease-webhook-service." + system + ".svc", MinVersion: tls.VersionTLS12,
	}}
	attempt := func(token string) (*http.Response, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost:"+forward(ctx, target, port)+"/metrics", nil)
		Expect(err).NotTo(HaveOccurred())
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		return transport.RoundTrip(request)
	}
	return func(token string) int {
		response, err := attempt(token)
		for n := 1; err != nil && n < 5; n++ {
			response, err = attempt(token)
		}
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		Expect(err).NotTo(HaveOccurred())
		if shown := regexp.MustCompile(`(?m)^fencedlease_`).Match(body); shown != (response.StatusCode == http.StatusOK) {
			Fail(fmt.Sprintf("code %d, metrics shown: %t", response.StatusCode, shown))
		}
		return response.StatusCode
	}
}

// forward forwards a local port, which it returns, until the end of the spec.
func forward(ctx context.Context, target, port string) string {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, os.Getenv("KUBECTL"), "-n", system, "port-forward", target, ":"+port)
	cmd.Stderr = GinkgoWriter
	out, err := cmd.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(cmd.Start()).To(Succeed())
	DeferCleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if found := regexp.MustCompile(`^Forwarding from 127\.0\.0\.1:(\d+)`).FindStringSubmatch(lines.Text()); found != nil {
			return found[1]
		}
	}
	Fail("kubectl port-forward has ended")
	return ""
}
