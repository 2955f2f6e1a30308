// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/test/env"
)

// dial is a function of its own for each client that uses it, as clients share connections otherwise.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, address)
}

// onePod returns a manager's pod: the elected one, or another.
func onePod(ctx context.Context, elected bool) *corev1.Pod {
	GinkgoHelper()
	lock, err := kube.CoordinationV1().Leases(system).Get(ctx, "fencedlease-manager.fencedlease.io", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	holder := resourcelock.LeaseSpecToLeaderElectionRecord(&lock.Spec).HolderIdentity
	pods, err := managers(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods {
		if holds := len(holder) > len(pod.Name) && holder[:len(pod.Name)] == pod.Name; holds == elected {
			return &pod
		}
	}
	Fail("no such pod, the holder is " + holder)
	return nil
}

// awaitRestart returns when a pod's container has been started again.
func awaitRestart(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	before := pod.Status.ContainerStatuses[0].RestartCount
	Eventually(ctx, func() (int32, error) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return pod.Status.ContainerStatuses[0].RestartCount, err
	}).Should(BeNumerically(">", before))
}

// awaitReplaced returns when a pod is gone and two others are ready, whatever the Deployment says so far.
func awaitReplaced(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		pods, err := managers(ctx)
		if err != nil {
			return err
		}
		ready := 0
		for _, other := range pods {
			if other.UID == pod.UID {
				return errors.New("it is there still")
			}
			if len(other.Status.ContainerStatuses) == 1 && other.Status.ContainerStatuses[0].Ready {
				ready++
			}
		}
		if ready != 2 {
			return fmt.Errorf("%d others are ready", ready)
		}
		return nil
	}).Should(Succeed())
}

func availabilitySpecs() {
	Context("while a leader writes without end", func() {
		var g *guarded
		BeforeEach(func(ctx SpecContext) {
			g = useExamples(ctx)
			awaitManagers(ctx, 2)
		})

		It("fails no write while the Deployment rolls to another image", func(ctx SpecContext) {
			l := startLoad(ctx, g)
			l.more(ctx, 50)
			begin := time.Now()
			mustKubectl(ctx, "-n", system, "set", "image", "deployment/"+deployment, "manager="+os.Getenv("E2E_NEXT_IMAGE"))
			mustKubectl(ctx, "-n", system, "rollout", "status", "deployment/"+deployment, "--timeout=120s")
			awaitManagers(ctx, 2)
			took := time.Since(begin)
			l.more(ctx, 100)
			failures := l.end(fmt.Sprintf("rollout (%.1f s until the last old pod was gone)", took.Seconds()))
			Expect(failures).To(BeEmpty())
		}, SpecTimeout(4*time.Minute))

		for _, c := range []struct {
			name    string
			disturb func(ctx context.Context, pod *corev1.Pod)
		}{
			{"a manager's process is killed", func(ctx context.Context, pod *corev1.Pod) {
				id, err := containerOf(pod)
				Expect(err).NotTo(HaveOccurred())
				Expect(cluster.kill(ctx, id)).To(Succeed())
				awaitRestart(ctx, pod)
			}},
			{"a manager is deleted without grace", func(ctx context.Context, pod *corev1.Pod) {
				Expect(admin.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
				awaitReplaced(ctx, pod)
			}},
			{"a manager is frozen for 20 s", func(ctx context.Context, pod *corev1.Pod) {
				id, err := containerOf(pod)
				Expect(err).NotTo(HaveOccurred())
				Expect(cluster.pause(ctx, id)).To(Succeed())
				pace(ctx, 20*time.Second)
				Expect(cluster.resume(ctx, id)).To(Succeed())
				// It has lost the election of the managers meanwhile, ends, and is started again.
				awaitRestart(ctx, pod)
			}},
		} {
			It("recovers by itself when "+c.name, func(ctx SpecContext) {
				l := startLoad(ctx, g)
				l.more(ctx, 50)
				c.disturb(ctx, onePod(ctx, true))
				awaitManagers(ctx, 2)
				l.more(ctx, 100)
				failures := l.end(c.name)
				// The connections of the API server to that manager, and what it sends there until the endpoint is gone.
				for _, f := range failures {
					Expect(unavailable(f.err)).To(BeTrue(), "%v", f.err)
				}
				Expect(spanOf(failures)).To(BeNumerically("<", 20*time.Second))
			}, SpecTimeout(3*time.Minute))
		}

		It("fails no write while a manager is evicted", func(ctx SpecContext) {
			l := startLoad(ctx, g)
			l.more(ctx, 50)
			pod := onePod(ctx, true)
			Expect(kube.PolicyV1().Evictions(system).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: pod.Name}})).To(Succeed())
			// Through all of its drain.
			awaitReplaced(ctx, pod)
			awaitManagers(ctx, 2)
			l.more(ctx, 100)
			Expect(l.end("a manager is evicted")).To(BeEmpty())
		}, SpecTimeout(3*time.Minute))

		for _, c := range []struct{ name, signal string }{{"is killed", "KILL"}, {"is told to end", "TERM"}} {
			It("recovers by itself when the API server "+c.name, func(ctx SpecContext) {
				l := startLoad(ctx, g)
				l.more(ctx, 50)
				Expect(cluster.signalAPIServer(ctx, c.signal)).To(Succeed())
				// The one that ends in order answers on for a while.
				Eventually(ctx, l.failed).Should(BeNumerically(">", 0), "nothing has ended")
				Eventually(ctx, func() error { return kube.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() }).Should(Succeed())
				l.more(ctx, 200)
				failures := l.end("the API server " + c.name)
				// Its own end and start, and the time that it takes to learn of the kinds that its policies are about.
				Expect(spanOf(failures)).To(BeNumerically("<", 2*time.Minute))
				// Broken connections, answers of the 500 class, and the 403 of RBAC while it learns its roles; never that the leader is none.
				for _, f := range failures {
					Expect(fenced(f.err)).To(BeFalse(), "%v", f.err)
				}
				awaitManagers(ctx, 2)
			}, SpecTimeout(5*time.Minute))
		}

		It("fails no write while certificates rotate", func(ctx SpecContext) {
			By("installing with certificates that last for seconds")
			mustKubectl(ctx, "-n", system, "scale", "deployment/"+deployment, "--replicas=0")
			awaitManagers(ctx, 0)
			mustKubectl(ctx, "-n", system, "delete", "secret", "fencedlease-webhook-cert")
			mustKubectl(ctx, "-n", system, "patch", "deployment", deployment, "--type=json", "-p", `[
				{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--cert-ca-life=110s"},
				{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--cert-leaf-life=30s"},
				{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--cert-settle=5s"},
				{"op":"replace","path":"/spec/replicas","value":2}]`)
			awaitManagers(ctx, 2)
			g.awaitReady(ctx)
			first, err := bundle(ctx)
			Expect(err).NotTo(HaveOccurred())
			ports := forwards(ctx)
			l := startLoad(ctx, g)
			begin := time.Now()
			Eventually(ctx, bundle).WithTimeout(2*time.Minute).ShouldNot(Equal(first), "a second authority")
			trusted := time.Since(begin)
			// The old one is in the bundle for long after; that the new one signs is seen in what is served.
			Eventually(ctx, issuer).WithArguments(ports).WithTimeout(2*time.Minute).ShouldNot(Equal(issuerOf(first)), "signs")
			signed := time.Since(begin)
			l.more(ctx, 200)
			Expect(l.end(fmt.Sprintf("rotation (new authority trusted after %.0f s, signing after %.0f s)", trusted.Seconds(), signed.Seconds()))).To(BeEmpty())
			mustKubectl(ctx, "-n", system, "delete", "secret", "fencedlease-webhook-cert")
			install(ctx)
		}, SpecTimeout(6*time.Minute))
	})

	It("fails closed while both managers are down, and disturbs nothing else", func(ctx SpecContext) {
		g := useExamples(ctx)
		a := g.acquire(ctx, "a")
		mustCreateIn(ctx, a, "daily")
		mustKubectl(ctx, "-n", system, "scale", "deployment/"+deployment, "--replicas=0")
		awaitManagers(ctx, 0)

		err := write(ctx, admin, a, "daily", "x1")
		Expect(unavailable(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("fencedlease")), "the message says what failed")
		GinkgoWriter.Println("a guarded write is told:", err)
		By("marks neither fall nor vanish")
		for _, mark := range []string{`"1.zzzzzzzz/1"`, `null`, `"garbage"`} {
			_, err := kubectl(ctx, "-n", "reports", "patch", "reports", "daily", "--type=merge", "-p",
				`{"metadata":{"annotations":{"token.fencedlease.io/report-writer":`+mark+`}}}`)
			Expect(err).To(MatchError(ContainSubstring("must not fall or vanish")), mark)
		}
		By("leaders renew, release and acquire")
		Expect(env.Renew(ctx, admin, a)).To(Succeed())
		Expect(env.Release(ctx, admin, a)).To(Succeed())
		b := g.acquire(ctx, "b")
		Expect(generationOf(b)).To(BeNumerically(">", generationOf(a)))
		By("everything else works")
		Expect(admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "reports", Name: "other-" + strconv.FormatInt(time.Now().Unix(), 36)}})).To(Succeed())
		Expect(admin.Create(ctx, env.NewReport("default", "unguarded-"+strconv.FormatInt(time.Now().Unix(), 36), "x"))).To(Succeed())
		w := startWorker(ctx, "other", "dial", "127.0.0.1:1")
		Expect(admin.Delete(ctx, w.pod)).To(Succeed())

		By("recovery by itself")
		begin := time.Now()
		mustKubectl(ctx, "-n", system, "scale", "deployment/"+deployment, "--replicas=2")
		Eventually(ctx, func() error { return write(ctx, admin, b, "daily", "x2") }).Should(Succeed())
		figure("both managers down: guarded writes work %.1f s after the Deployment has its replicas back", time.Since(begin).Seconds())
		err = write(ctx, admin, a, "daily", "late")
		Expect(err).To(HaveOccurred())
		Expect(unavailable(err)).To(BeFalse(), "%v", err)
		awaitManagers(ctx, 2)
	}, SpecTimeout(3*time.Minute))
}

// bundle is what API servers trust when they call for a guarded write.
func bundle(ctx context.Context) (string, error) {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := admin.Get(ctx, client.ObjectKey{Name: "fencedlease-guards"}, configuration); err != nil {
		return "", err
	}
	if len(configuration.Webhooks) == 0 {
		return "", errors.New("no webhook is registered")
	}
	return string(configuration.Webhooks[0].ClientConfig.CABundle), nil
}

// issuerOf is the name of the last authority in a bundle.
func issuerOf(bundle string) string {
	last := ""
	for rest := []byte(bundle); ; {
		block, more := pem.Decode(rest)
		if block == nil {
			return last
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			last = certificate.Subject.CommonName
		}
		rest = more
	}
}

// forwards returns a local port for the webhook of each manager.
func forwards(ctx context.Context) []string {
	GinkgoHelper()
	pods, err := managers(ctx)
	Expect(err).NotTo(HaveOccurred())
	var ports []string
	for _, pod := range pods {
		ports = append(ports, forward(ctx, "pod/"+pod.Name, "9443"))
	}
	return ports
}

// issuer returns who has signed the certificates that are served on all ports.
func issuer(ctx context.Context, ports []string) (string, error) {
	common := ""
	for _, port := range ports {
		served, err := serving(ctx, port)
		if err != nil {
			return "", err
		}
		name := served.Issuer.CommonName
		if common != "" && name != common {
			return "", errors.New("managers serve certificates of two authorities")
		}
		common = name
	}
	return common, nil
}

// serving returns the certificate that is served on a local port.
func serving(ctx context.Context, port string) (served *x509.Certificate, err error) {
	// Only looked at: who is trusted is up to the API server.
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}
	connection, err := dialer.DialContext(ctx, "tcp", "localhost:"+port)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, connection.Close()) }()
	secure, ok := connection.(*tls.Conn)
	if !ok || len(secure.ConnectionState().PeerCertificates) == 0 {
		return nil, errors.New("no certificate is served")
	}
	return secure.ConnectionState().PeerCertificates[0], nil
}
