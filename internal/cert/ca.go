// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Types of PEM blocks.
const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

// ca is a certificate authority with its key. It never changes. The key is kept in the form in which it is stored as well.
type ca struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	keyDER []byte
}

// newCA makes a CA that is valid for life from now, and from skew before now.
func newCA(now time.Time, life, skew time.Duration) (*ca, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key of CA: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key of CA: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// A name for each CA, so that a verifier that looks issuers up by name never tries the wrong one.
		Subject:               pkix.Name{Organization: []string{"fencedlease.io"}, CommonName: fmt.Sprintf("fencedlease-webhook-ca-%x", serial)},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse certificate of CA: %w", err)
	}
	return &ca{cert: cert, key: key, keyDER: keyDER}, nil
}

// parseCA reads a CA from the PEM of its certificate and key.
func parseCA(certPEM, keyPEM []byte) (*ca, error) {
	cert, err := parseAuthority(certPEM)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(keyPEM)
	if block == nil || block.Type != pemKey {
		return nil, errors.New("parse key: no PEM block of type " + pemKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("parse key: %T is not an ECDSA key", parsed)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("the key does not belong to the certificate")
	}
	return &ca{cert: cert, key: key, keyDER: block.Bytes}, nil
}

// parseAuthority reads the certificate of a CA from PEM.
func parseAuthority(certPEM []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(certPEM)
	if block == nil || block.Type != pemCertificate {
		return nil, errors.New("parse certificate: no PEM block of type " + pemCertificate)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	if !cert.IsCA {
		return nil, errors.New("the certificate is not that of a CA")
	}
	return cert, nil
}

// renewAt is when the fraction of the CA's life is over. The time before it was made does not count.
func (c *ca) renewAt(fraction float64, skew time.Duration) time.Time {
	life := c.cert.NotAfter.Sub(c.cert.NotBefore.Add(skew))
	return c.cert.NotAfter.Add(-remainder(life, fraction))
}

// expired reports whether the CA has ended.
func (c *ca) expired(now time.Time) bool { return !now.Before(c.cert.NotAfter) }

// servingLeaf is a serving certificate with what the replica needs to know about it.
type servingLeaf struct {
	tls *tls.Certificate
	// signer is the certificate of the CA that signed it.
	signer *x509.Certificate
	// renewAt is when it is to be replaced.
	renewAt time.Time
}

// signLeaf makes a serving certificate for the names of the options. It never outlives the CA.
func (c *ca) signLeaf(o Options, now time.Time) (*servingLeaf, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key of serving certificate: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	notAfter := now.Add(o.LeafLife)
	if notAfter.After(c.cert.NotAfter) {
		notAfter = c.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"fencedlease.io"}, CommonName: "fencedlease-webhook"},
		NotBefore:             now.Add(-o.ClockSkew),
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              o.DNSNames,
		IPAddresses:           o.IPs,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, key.Public(), c.key)
	if err != nil {
		return nil, fmt.Errorf("sign serving certificate: %w", err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse serving certificate: %w", err)
	}
	return &servingLeaf{
		tls:     &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: parsed},
		signer:  c.cert,
		renewAt: parsed.NotAfter.Add(-remainder(parsed.NotAfter.Sub(now), o.LeafRenewFraction)),
	}, nil
}

// newSerial returns a random positive serial number of 127 bits.
func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choose serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

func encodeCertificate(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: cert.Raw})
}
