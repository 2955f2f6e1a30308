// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// WithBearerToken returns a copy of a configuration whose clients authenticate by a bearer token alone, with each request
// by the one that token returns then, and send no write after the possession has ended. It is for tokens that the lease
// lists as credentials of the possession's term: they present its token by themselves. Whom config authenticates as, and
// impersonates, is left out, and so is a transport of its own.
func WithBearerToken(config *rest.Config, possession Possession, token func() string) *rest.Config {
	bearing := rest.AnonymousClientConfig(config)
	bearing.WarningHandler, bearing.WarningHandlerWithContext = config.WarningHandler, config.WarningHandlerWithContext
	bearing.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &bearer{next: next, possession: possession, token: token}
	})
	return bearing
}

// bearer is a transport that authenticates requests, and keeps writes of an ended term back.
type bearer struct {
	next       http.RoundTripper
	possession Possession
	token      func() string
}

var _ utilnet.RoundTripperWrapper = &bearer{}

// WrappedRoundTripper returns the transport below.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.next }

// RoundTrip sends a request.
func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	if mayWrite(req.Method) {
		if err := checkHeld(b.possession); err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, err
		}
	}
	req = utilnet.CloneRequest(req)
	req.Header.Set("Authorization", "Bearer "+b.token())
	return b.next.RoundTrip(req)
}
