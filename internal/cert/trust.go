// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"time"
)

// trust is what the installed webhook configurations trust: for each webhook the certificates of its bundle.
type trust []trustEntry

type trustEntry struct {
	certs []*x509.Certificate
	// empty is a webhook without any bundle. It trusts nothing, so nothing that it trusts can be taken from it.
	empty bool
}

// parseTrust reads bundles. What cannot be read in one is trusted by nobody and passed over.
func parseTrust(bundles [][]byte) trust {
	out := make(trust, 0, len(bundles))
	for _, bundle := range bundles {
		entry := trustEntry{empty: len(bundle) == 0}
		for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
			if block.Type != pemCertificate {
				continue
			}
			if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
				entry.certs = append(entry.certs, cert)
			}
		}
		out = append(out, entry)
	}
	return out
}

// covers reports whether every webhook that trusts anything trusts the certificate, so that serving a leaf of that CA
// fails no call that would not fail anyway.
func (t trust) covers(cert *x509.Certificate) bool {
	for _, entry := range t {
		if !entry.empty && !slices.ContainsFunc(entry.certs, cert.Equal) {
			return false
		}
	}
	return true
}

// carries reports whether every webhook trusts all of the certificates.
func (t trust) carries(certs []*x509.Certificate) bool {
	for _, entry := range t {
		for _, cert := range certs {
			if !slices.ContainsFunc(entry.certs, cert.Equal) {
				return false
			}
		}
	}
	return true
}

// authorities returns the CAs that any webhook trusts and that have not ended.
func (t trust) authorities(now time.Time) []*x509.Certificate {
	var out []*x509.Certificate
	for _, entry := range t {
		for _, cert := range entry.certs {
			if cert.IsCA && now.Before(cert.NotAfter) && !slices.ContainsFunc(out, cert.Equal) {
				out = append(out, cert)
			}
		}
	}
	return out
}
