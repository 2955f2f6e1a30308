// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package manager_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/internal/manager"
	"github.com/fencedlease/fencedlease/test/env"
)

// issuer makes certificates as cert-manager's issuer of a CA does.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newIssuer(t *testing.T, name string) *issuer {
	t.Helper()
	i := &issuer{}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	i.pem, i.cert, i.key = sign(t, template, nil)
	return i
}

// sign signs a certificate by an issuer, or by itself.
func sign(t *testing.T, template *x509.Certificate, by *issuer) (encoded []byte, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	must(t, err)
	// The API servers' clock is the machine's.
	now := time.Now()
	template.NotBefore, template.NotAfter = now.Add(-time.Minute), now.Add(time.Hour)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	must(t, err)
	cert, err = x509.ParseCertificate(der)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), cert, key
}

// fill replaces the content of a folder by a new certificate, as the kubelet does: by moving one link.
func (i *issuer) fill(t *testing.T, dir string) *x509.Certificate {
	t.Helper()
	encoded, cert, key := sign(t, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, i)
	der, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	content, err := os.MkdirTemp(dir, "..content") //nolint:usetesting // it must lie in the folder, for a relative link
	must(t, err)
	for name, data := range map[string][]byte{
		"tls.crt": encoded, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), "ca.crt": i.pem,
	} {
		must(t, os.WriteFile(filepath.Join(content, name), data, 0o600))
		if link := filepath.Join(dir, name); !exists(link) {
			must(t, os.Symlink(filepath.Join("..data", name), link))
		}
	}
	must(t, os.Symlink(filepath.Base(content), filepath.Join(dir, "..data_tmp")))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	return cert
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// testCertificatesOfAFolder: with certificates that somebody else makes, neither a renewal nor a change of the CA fails a write.
func (w *world) testCertificatesOfAFolder(t *testing.T) {
	dir := t.TempDir()
	first := newIssuer(t, "first")
	initial := first.fill(t, dir)
	m := w.start(t, func(o *manager.Options) {
		o.WebhookCertPath, o.CertCheck, o.CertSettle = dir, 200*time.Millisecond, 3*time.Second
	})
	serves := func(what string, want *x509.Certificate) {
		t.Helper()
		eventually(t, what, func() error {
			dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
			connection, err := dialer.DialContext(t.Context(), "tcp", env.Local(m.Port))
			if err != nil {
				return err
			}
			defer func() { _ = connection.Close() }()
			if served := connection.(*tls.Conn).ConnectionState().PeerCertificates[0]; !served.Equal(want) {
				return fmt.Errorf("it serves certificate %v, not %v", served.SerialNumber, want.SerialNumber)
			}
			return nil
		})
	}
	trusts := func(i *issuer) {
		t.Helper()
		eventually(t, "the configurations trust "+i.cert.Subject.CommonName, func() error {
			live := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			for _, name := range []string{"fencedlease-guards", "fencedlease-validation"} {
				if err := w.admin.Get(t.Context(), client.ObjectKey{Name: name}, live); err != nil {
					return err
				}
				if !bytes.Contains(live.Webhooks[0].ClientConfig.CABundle, i.pem) {
					return fmt.Errorf("%s does not trust it", name)
				}
			}
			return nil
		})
	}
	serves("the certificate of the folder", initial)
	trusts(first)
	writing := w.guard(t).keepWriting(t, 2)
	writing.more(t, 10)

	serves("the renewed certificate", first.fill(t, dir))
	writing.more(t, 10)

	second := newIssuer(t, "second")
	next := second.fill(t, dir)
	trusts(second)
	trusts(first)
	serves("the certificate of the other CA", next)
	// API servers keep connections; a new one is made with the new certificate only.
	writing.more(t, 50)
	writing.mustNotHaveFailed(t)
}
