// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// Option changes how Wrap carries a token.
type Option func(*options)

type options struct {
	user *rest.ImpersonationConfig
}

// AsUser says which user the credentials of the configuration belong to, so that Wrap need not ask the API server. Groups,
// uid and extra are sent as they are given, and each needs a right to impersonate it; the groups of a service account
// follow from its name and are better left out. It has no effect without a name, or where the configuration impersonates a
// user itself.
func AsUser(user rest.ImpersonationConfig) Option {
	return func(o *options) {
		if user.UserName != "" {
			o.user = &user
		}
	}
}

// Wrap returns a copy of a configuration whose clients carry the token of a possession with every request that can write:
// with all but GET, HEAD and OPTIONS. Each such request, and each repetition of it, is first refused with an *EndedError
// if the possession has ended. It then impersonates the caller's own user, with the token as extra key
// token.fencedlease.io/<lease>: the user that config impersonates, with all that it says, or that of option AsUser, or
// else the one that the API server names when it is asked before the first write. Of a service account the name is enough;
// of other users their groups are kept, and other extra values are not.
//
// An API server that does not permit the impersonation answers with an *ImpersonationError.
//
// A request whose context is one of WithOperation carries the operation with the token. That it was applied before is an
// error here, see AlreadyAppliedRecord; Replaying makes it a success.
//
// A configuration for objects that several leases guard is wrapped once for each. The possession's own client, by which
// it is renewed and released, must not be made from the copy.
func Wrap(config *rest.Config, possession Possession, opts ...Option) *rest.Config {
	var o options
	for _, option := range opts {
		option(&o)
	}
	user := newOwnUser(config, o.user)
	wrapped := rest.CopyConfig(config)
	wrapped.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &carrier{next: next, possession: possession, user: user}
	})
	return wrapped
}

// carrier is a transport that carries a token with writes.
type carrier struct {
	next       http.RoundTripper
	possession Possession
	user       *ownUser
}

var _ utilnet.RoundTripperWrapper = &carrier{}

// WrappedRoundTripper returns the transport below.
func (c *carrier) WrappedRoundTripper() http.RoundTripper { return c.next }

// RoundTrip sends a request.
func (c *carrier) RoundTrip(req *http.Request) (*http.Response, error) {
	if !mayWrite(req.Method) || asksWho(req.Context()) || pending(c.possession) {
		return c.next.RoundTrip(req)
	}
	identity, req, err := c.prepare(req)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	response, err := transport.NewImpersonatingRoundTripper(identity, c.next).RoundTrip(req)
	if err != nil {
		return response, err
	}
	return explainForbidden(response, c.possession.Lease(), identity)
}

func mayWrite(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		return false
	default:
		return true
	}
}

// prepare returns whom a request is to impersonate, and the request as it is to be sent. After an error the request is the
// one that came.
func (c *carrier) prepare(req *http.Request) (transport.ImpersonationConfig, *http.Request, error) {
	if err := checkHeld(c.possession); err != nil {
		return transport.ImpersonationConfig{}, req, err
	}
	key, token, err := c.presented(req.Context())
	if err != nil {
		return transport.ImpersonationConfig{}, req, err
	}
	if name := req.Header.Get(transport.ImpersonateUserHeader); name != "" {
		// The configuration, or that of another lease, impersonates a user already, who stays who it is.
		if other, carried := carriedToken(req.Header, key); carried {
			return transport.ImpersonationConfig{}, req, fmt.Errorf("carry token %s of FencedLease %s: the request carries %q already",
				token, c.possession.Lease(), other)
		}
		req = utilnet.CloneRequest(req)
		req.Header.Del(transport.ImpersonateUserHeader)
		identity := transport.ImpersonationConfig{UserName: name, Extra: map[string][]string{key: {token}}}
		// The other headers are there already.
		return identity, req, nil
	}
	user, err := c.user.get(req.Context())
	if err != nil {
		return transport.ImpersonationConfig{}, req, fmt.Errorf("carry token of FencedLease %s: %w", c.possession.Lease(), err)
	}
	extra := map[string][]string{}
	for k, v := range user.Extra {
		extra[k] = v
	}
	extra[key] = []string{token}
	identity := transport.ImpersonationConfig{UserName: user.UserName, UID: user.UID, Groups: user.Groups, Extra: extra}
	// Once more: the question took time.
	return identity, req, checkHeld(c.possession)
}

// presented returns the key of extra and the token that a request carries, with the operation of its context.
func (c *carrier) presented(ctx context.Context) (key, text string, err error) {
	lease, t := c.possession.Lease(), c.possession.Token()
	if o := operationOf(ctx, lease); o != nil {
		if t, err = t.WithOperation(o.id); err != nil {
			return "", "", fmt.Errorf("carry operation %s of FencedLease %s: %w", o.id, lease, err)
		}
	}
	return v1alpha1.TokenKey(lease.Name), t.String(), nil
}

// carriedToken returns what a request carries under a key of extra, read as the API server reads it.
func carriedToken(header http.Header, key string) (value string, carried bool) {
	for name, values := range header {
		escaped, ok := strings.CutPrefix(name, transport.ImpersonateUserExtraHeaderPrefix)
		if !ok {
			continue
		}
		if unescaped, err := url.PathUnescape(strings.ToLower(escaped)); err == nil && unescaped == key {
			return strings.Join(values, ", "), true
		}
	}
	return "", false
}
