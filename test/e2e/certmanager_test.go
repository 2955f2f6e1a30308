// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// authority signs what a Certificate of cert-manager asks for, as cert-manager does, whose programs are not here.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	encoded     []byte
}

func newAuthority(name string) *authority {
	GinkgoHelper()
	a := &authority{}
	a.encoded, a.certificate, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// sign signs a certificate, the authority's own first.
func (a *authority) sign(template *x509.Certificate) (encoded []byte, certificate *x509.Certificate, key *ecdsa.PrivateKey) {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	Expect(err).NotTo(HaveOccurred())
	now := time.Now()
	template.NotBefore, template.NotAfter = now.Add(-time.Minute), now.Add(24*time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	Expect(err).NotTo(HaveOccurred())
	certificate, err = x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), certificate, key
}

// issue writes the Secret of a Certificate, and returns what is in it.
func (a *authority) issue(ctx context.Context, name string) *x509.Certificate {
	GinkgoHelper()
	asked := &unstructured.Unstructured{}
	asked.SetGroupVersionKind(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"})
	Expect(admin.Get(ctx, client.ObjectKey{Namespace: system, Name: name}, asked)).To(Succeed())
	names, _, err := unstructured.NestedStringSlice(asked.Object, "spec", "dnsNames")
	Expect(err).NotTo(HaveOccurred())
	to, _, err := unstructured.NestedString(asked.Object, "spec", "secretName")
	Expect(err).NotTo(HaveOccurred())
	encoded, certificate, key := a.sign(&x509.Certificate{
		DNSNames: names, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	der, err := x509.MarshalECPrivateKey(key)
	Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: to}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{
			"tls.crt": encoded, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), "ca.crt": a.encoded,
		},
	}
	err = admin.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		err = admin.Update(ctx, secret)
	}
	Expect(err).NotTo(HaveOccurred())
	return certificate
}

func certManagerSpecs() {
	It("runs by certificates that cert-manager's overlay asks for, and fails no write while they are renewed", func(ctx SpecContext) {
		definitions := []string{
			"-f", filepath.Join(os.Getenv("E2E_CERT_MANAGER"), "cert-manager.io_certificates.yaml"),
			"-f", filepath.Join(os.Getenv("E2E_CERT_MANAGER"), "cert-manager.io_issuers.yaml"),
		}
		mustKubectl(ctx, append([]string{"create"}, definitions...)...)
		mustKubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "crd/certificates.cert-manager.io", "crd/issuers.cert-manager.io")
		g := useExamples(ctx)
		stop := func() {
			mustKubectl(ctx, "-n", system, "scale", "deployment", deployment, "--replicas=0")
			mustKubectl(ctx, "-n", system, "wait", "--for=delete", "pod", "-l", "control-plane=controller-manager", "--timeout=120s")
		}

		By("changing to the overlay as the installation guide says")
		stop()
		begin := time.Now()
		mustKubectl(ctx, "apply", "--server-side", "--force-conflicts", "-k", "config/certmanager")
		ca := newAuthority("played-by-the-specs")
		first := ca.issue(ctx, "fencedlease-webhook-server")
		awaitManagers(ctx, 2)
		g.awaitReady(ctx)
		figure("cert-manager's overlay: ready %.1f s after its apply", time.Since(begin).Seconds())
		Eventually(ctx, bundle).Should(ContainSubstring(string(ca.encoded)))
		ports := forwards(ctx)
		served := func(ctx context.Context, want *x509.Certificate) error {
			for _, port := range ports {
				if got, err := serving(ctx, port); err != nil {
					return err
				} else if !got.Equal(want) {
					return fmt.Errorf("certificate %v is served, of %s", got.SerialNumber, got.Issuer.CommonName)
				}
			}
			return nil
		}
		Expect(served(ctx, first)).To(Succeed())

		By("renewing the certificate")
		l := startLoad(ctx, g)
		l.more(ctx, 50)
		begin = time.Now()
		second := ca.issue(ctx, "fencedlease-webhook-server")
		// Kubelets look at what they have mounted about once in a minute.
		Eventually(ctx, served).WithArguments(second).WithTimeout(3 * time.Minute).Should(Succeed())
		renewed := time.Since(begin)
		l.more(ctx, 100)
		Expect(l.end(fmt.Sprintf("renewal by cert-manager (served after %.0f s)", renewed.Seconds()))).To(BeEmpty())

		By("changing back")
		stop()
		install(ctx)
		g.awaitReady(ctx)
		mustKubectl(ctx, append([]string{"delete"}, definitions...)...)
		b := g.acquire(ctx, "b")
		mustCreateIn(ctx, b, "daily")
	}, SpecTimeout(7*time.Minute))
}
