// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"errors"
	"fmt"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// WithBearerToken returns a copy of a configuration whose clients authenticate by a bearer token alone, with each request
// by the one that token returns then, and send no write after the possession has ended. It is for tokens that the lease
// lists as credentials of the possession's term: they present its token by themselves. Whom config authenticates as, and
// impersonates, is left out, and so is a transport of its own.
//
// A bearer token has no place for an operation. Client, given a client of this configuration, writes it into an annotation
// besides. Without that a write whose context is one of WithOperation is not sent, see ErrOperationNotCarried.
func WithBearerToken(config *rest.Config, possession Possession, token func() string) *rest.Config {
	bearing := rest.AnonymousClientConfig(config)
	bearing.WarningHandler, bearing.WarningHandlerWithContext = config.WarningHandler, config.WarningHandlerWithContext
	bearing.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &bearer{next: next, possession: possession, token: token}
	})
	return bearing
}

// ErrOperationNotCarried means that a write was not sent, as its operation would not have been presented with it: the write
// would have been applied each time.
var ErrOperationNotCarried = errors.New("a bearer token carries no operation: make the client by fenced.Client (Term.Client) from this one, " +
	"which writes it into an annotation, or by fenced.Wrap (Term.Wrap), or write with a context that has no operation")

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
		if err := b.check(req); err != nil {
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

// check returns why a write must not be sent.
func (b *bearer) check(req *http.Request) error {
	if err := checkHeld(b.possession); err != nil {
		return err
	}
	lease, ctx := b.possession.Lease(), req.Context()
	if o := operationOf(ctx, lease); o != nil && ctx.Value(presentingKey(lease)) == nil {
		return fmt.Errorf("%s not sent, operation %s of FencedLease %s: %w", req.Method, o.id, lease, ErrOperationNotCarried)
	}
	return nil
}
