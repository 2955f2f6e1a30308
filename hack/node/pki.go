// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// pki signs the certificates of one cluster.
type pki struct {
	p    place
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// writePKI writes all certificates, keys and kubeconfigs.
func writePKI(p place) error {
	a, err := newPKI(p)
	if err != nil {
		return fmt.Errorf("make certificate authority: %w", err)
	}
	servers := map[string]*x509.Certificate{
		"apiserver": {
			DNSNames:    []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"},
			IPAddresses: []net.IP{net.ParseIP(nodeAddress), net.ParseIP(serviceAddress), net.ParseIP("127.0.0.1")},
		},
		"kubelet": {DNSNames: []string{nodeName}, IPAddresses: []net.IP{net.ParseIP(nodeAddress)}},
	}
	for name, template := range servers {
		template.Subject.CommonName, template.ExtKeyUsage = name, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if err := a.writePair(name, template); err != nil {
			return err
		}
	}
	if err := a.writePair("kubelet-client", client("kubernetes", "system:masters")); err != nil {
		return err
	}
	for name, template := range map[string]*x509.Certificate{
		"admin":                   client("admin", "system:masters"),
		"kube-controller-manager": client("system:kube-controller-manager"),
		"kube-scheduler":          client("system:kube-scheduler"),
		"kube-proxy":              client("system:kube-proxy"),
		"kubelet":                 client("system:node:"+nodeName, "system:nodes"),
	} {
		if err := a.writeKubeconfig(name, template); err != nil {
			return err
		}
	}
	return a.writeServiceAccountKeys()
}

func client(user string, groups ...string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: user, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func newPKI(p place) (*pki, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fencedlease-node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(7 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &pki{p: p, cert: cert, key: key, pem: encode("CERTIFICATE", der)}
	return a, p.write("pki/ca.crt", a.pem)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (a *pki) sign(template *x509.Certificate) (cert, key []byte, err error) {
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, err
	}
	template.NotBefore, template.NotAfter, template.KeyUsage = a.cert.NotBefore, a.cert.NotAfter, x509.KeyUsageDigitalSignature
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, pair.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalECPrivateKey(pair)
	if err != nil {
		return nil, nil, err
	}
	return encode("CERTIFICATE", der), encode("EC PRIVATE KEY", private), nil
}

func (a *pki) writePair(name string, template *x509.Certificate) error {
	cert, key, err := a.sign(template)
	if err != nil {
		return fmt.Errorf("sign certificate %s: %w", name, err)
	}
	if err := a.p.write("pki/"+name+".crt", cert); err != nil {
		return err
	}
	return a.p.write("pki/"+name+".key", key)
}

func (a *pki) writeKubeconfig(name string, template *x509.Certificate) error {
	cert, key, err := a.sign(template)
	if err != nil {
		return fmt.Errorf("sign certificate of %s: %w", name, err)
	}
	b := base64.StdEncoding.EncodeToString
	if name == "admin" {
		if err := errors.Join(a.p.write("pki/admin.crt", cert), a.p.write("pki/admin.key", key)); err != nil {
			return err
		}
	}
	return a.p.write(name+".kubeconfig", fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: fencedlease-node
  cluster: {server: %q, certificate-authority-data: %s}
users:
- name: %s
  user: {client-certificate-data: %s, client-key-data: %s}
contexts:
- name: fencedlease-node
  context: {cluster: fencedlease-node, user: %s}
current-context: fencedlease-node
`, apiServer, b(a.pem), name, b(cert), b(key), name))
}

func (a *pki) writeServiceAccountKeys() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := a.p.write("pki/sa.key", encode("EC PRIVATE KEY", private)); err != nil {
		return err
	}
	return a.p.write("pki/sa.pub", encode("PUBLIC KEY", public))
}
