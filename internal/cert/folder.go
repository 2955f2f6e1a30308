// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The files of a folder, as Secrets of type kubernetes.io/tls and cert-manager name them.
const (
	fileCert = "tls.crt"
	fileKey  = "tls.key"
	fileCA   = "ca.crt"
)

// folder is the content of a folder with a serving certificate that was verified.
type folder struct {
	leaf *servingLeaf
	// authorities are the certificates of ca.crt; that which the leaf was verified by is among them.
	authorities []*x509.Certificate
}

// holds reports whether ca.crt has the certificate.
func (f *folder) holds(cert *x509.Certificate) bool {
	return f != nil && slices.ContainsFunc(f.authorities, cert.Equal)
}

// readFolder reads the folder. What it returns would be accepted by API servers that trust ca.crt. A folder that is replaced while it is
// read is an error, and is read anew with the next check.
func readFolder(o FilesOptions, now time.Time) (*folder, error) {
	content := map[string][]byte{}
	for _, name := range []string{fileCert, fileKey, fileCA} {
		data, err := os.ReadFile(filepath.Join(o.Dir, name))
		if err != nil {
			return nil, err
		}
		content[name] = data
	}
	pair, err := tls.X509KeyPair(content[fileCert], content[fileKey])
	if err != nil {
		return nil, fmt.Errorf("read %s and %s: %w", fileCert, fileKey, err)
	}
	authorities, err := parseAuthorities(content[fileCA])
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", fileCA, err)
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, cert := range authorities {
		roots.AddCert(cert)
	}
	for _, der := range pair.Certificate[1:] {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", fileCert, err)
		}
		intermediates.AddCert(cert)
	}
	chains, err := pair.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, fmt.Errorf("verify %s by %s: %w", fileCert, fileCA, err)
	}
	for _, host := range o.Hosts {
		if err := pair.Leaf.VerifyHostname(host); err != nil {
			return nil, fmt.Errorf("verify %s: %w", fileCert, err)
		}
	}
	chain := chains[0]
	return &folder{leaf: &servingLeaf{tls: &pair, signer: chain[len(chain)-1]}, authorities: authorities}, nil
}

// parseAuthorities reads certificates of CAs.
func parseAuthorities(bundle []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemCertificate {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate: %w", err)
		}
		if !slices.ContainsFunc(certs, cert.Equal) {
			certs = append(certs, cert)
		}
	}
	if len(certs) == 0 {
		return nil, errors.New("there is no certificate: the issuer must be one that tells its CA")
	}
	return certs, nil
}
