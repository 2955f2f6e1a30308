// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Keys of the Secret.
const (
	keyRevision = "revision"
	keyCert     = "ca.crt"
	keyKey      = "ca.key"
	keyNextCert = "next-ca.crt"
	keyNextKey  = "next-ca.key"
	keyRetired  = "retired.json"
)

const (
	// maxRetired bounds the bundle. More CAs than this are retained only if the Secret was replaced many times.
	maxRetired = 8
	// maxRevision is far above what any history can reach.
	maxRevision = int64(1e15)
)

// state is what the Secret holds. It never changes: each step makes a new one.
type state struct {
	// revision is raised with each change.
	revision int64
	// signing is the CA that signs.
	signing *ca
	// next is the CA that will sign, nil if no rotation is under way.
	next *ca
	// retired are the CAs that sign no more and are still trusted.
	retired []retiredCA
}

// retiredCA is a CA without its key.
type retiredCA struct {
	cert *x509.Certificate
	// until is when it need no longer be trusted, whole seconds.
	until time.Time
}

// storedRetired is the stored form of a retiredCA.
type storedRetired struct {
	Certificate string    `json:"certificate"`
	Until       time.Time `json:"until"`
}

// encode returns the data of the Secret.
func (s *state) encode() (map[string][]byte, error) {
	data := map[string][]byte{
		keyRevision: []byte(strconv.FormatInt(s.revision, 10)),
		keyCert:     encodeCertificate(s.signing.cert),
		keyKey:      pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: s.signing.keyDER}),
	}
	if s.next != nil {
		data[keyNextCert] = encodeCertificate(s.next.cert)
		data[keyNextKey] = pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: s.next.keyDER})
	}
	if len(s.retired) > 0 {
		stored := make([]storedRetired, 0, len(s.retired))
		for _, r := range s.retired {
			stored = append(stored, storedRetired{Certificate: string(encodeCertificate(r.cert)), Until: r.until})
		}
		encoded, err := json.Marshal(stored)
		if err != nil {
			return nil, fmt.Errorf("encode retired CAs: %w", err)
		}
		data[keyRetired] = encoded
	}
	return data, nil
}

// decodeState reads the data of the Secret. Keys that it does not know are passed over. No error shows key material.
func decodeState(data map[string][]byte) (*state, error) {
	revision, err := strconv.ParseInt(string(data[keyRevision]), 10, 64)
	if err != nil || revision < 1 || revision > maxRevision {
		return nil, errors.New(keyRevision + " is not a whole number between 1 and 10^15")
	}
	s := &state{revision: revision}
	if s.signing, err = parseCA(data[keyCert], data[keyKey]); err != nil {
		return nil, fmt.Errorf("%s and %s: %w", keyCert, keyKey, err)
	}
	if len(data[keyNextCert])+len(data[keyNextKey]) > 0 {
		if s.next, err = parseCA(data[keyNextCert], data[keyNextKey]); err != nil {
			return nil, fmt.Errorf("%s and %s: %w", keyNextCert, keyNextKey, err)
		}
	}
	if len(data[keyRetired]) > 0 {
		if s.retired, err = decodeRetired(data[keyRetired]); err != nil {
			return nil, fmt.Errorf("%s: %w", keyRetired, err)
		}
	}
	return s, nil
}

func decodeRetired(data []byte) ([]retiredCA, error) {
	var stored []storedRetired
	if err := json.Unmarshal(data, &stored); err != nil {
		return nil, fmt.Errorf("parse list: %w", err)
	}
	if len(stored) > maxRetired {
		return nil, fmt.Errorf("%d entries, at most %d are possible", len(stored), maxRetired)
	}
	var retired []retiredCA
	for _, r := range stored {
		cert, err := parseAuthority([]byte(r.Certificate))
		if err != nil {
			return nil, err
		}
		retired = append(retired, retiredCA{cert: cert, until: wholeSeconds(r.Until)})
	}
	return retired, nil
}

// trusted returns the certificates that API servers must trust in this state, oldest first. The order does not depend on
// who signs, so that the bundle stays the same when that changes.
func (s *state) trusted() []*x509.Certificate {
	certs := []*x509.Certificate{s.signing.cert}
	if s.next != nil {
		certs = append(certs, s.next.cert)
	}
	for _, r := range s.retired {
		certs = append(certs, r.cert)
	}
	slices.SortFunc(certs, func(a, b *x509.Certificate) int {
		if c := a.NotBefore.Compare(b.NotBefore); c != 0 {
			return c
		}
		return bytes.Compare(a.Raw, b.Raw)
	})
	return certs
}

// bundle returns the certificates of trusted as PEM.
func (s *state) bundle() []byte {
	var out []byte
	for _, cert := range s.trusted() {
		out = append(out, encodeCertificate(cert)...)
	}
	return out
}

// trusts reports whether the certificate is one of trusted.
func (s *state) trusts(cert *x509.Certificate) bool {
	return slices.ContainsFunc(s.trusted(), cert.Equal)
}

// equal reports whether both states are stored in the same form.
func (s *state) equal(other *state) bool {
	return s.revision == other.revision &&
		s.signing.equal(other.signing) && s.next.equal(other.next) &&
		slices.EqualFunc(s.retired, other.retired, func(a, b retiredCA) bool {
			return a.cert.Equal(b.cert) && a.until.Equal(b.until)
		})
}

func (c *ca) equal(other *ca) bool {
	if c == nil || other == nil {
		return c == other
	}
	return c.cert.Equal(other.cert) && bytes.Equal(c.keyDER, other.keyDER)
}

// successor returns a copy with the next revision, for a step to change.
func (s *state) successor() *state {
	out := *s
	out.revision++
	out.retired = slices.Clone(s.retired)
	return &out
}

// retain returns a copy, of the same revision, that trusts the given CAs at least until then. Of more than the bundle may
// hold, those that are needed for the longest stay.
func (s *state) retain(certs []*x509.Certificate, until time.Time) *state {
	out := *s
	out.retired = slices.Clone(s.retired)
	until = wholeSeconds(until)
	for _, cert := range certs {
		if i := slices.IndexFunc(out.retired, func(r retiredCA) bool { return r.cert.Equal(cert) }); i >= 0 {
			if out.retired[i].until.Before(until) {
				out.retired[i].until = until
			}
		} else if !out.trusts(cert) {
			out.retired = append(out.retired, retiredCA{cert: cert, until: until})
		}
	}
	if len(out.retired) > maxRetired {
		slices.SortStableFunc(out.retired, func(a, b retiredCA) int { return b.until.Compare(a.until) })
		out.retired = out.retired[:maxRetired]
	}
	return &out
}

// wholeSeconds is the form in which times are stored. It never shortens a wait.
func wholeSeconds(t time.Time) time.Time {
	whole := t.UTC().Truncate(time.Second)
	if whole.Before(t) {
		whole = whole.Add(time.Second)
	}
	return whole
}
