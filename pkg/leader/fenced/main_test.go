// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
)

var errLost = errors.New("lost to somebody else")

// term is a possession whose end the test decides.
type term struct {
	lease  types.NamespacedName
	token  token.Token
	guards []v1alpha1.Guard

	mu  sync.Mutex
	err error
}

var _ fenced.Possession = &term{}

func (p *term) Lease() types.NamespacedName { return p.lease }
func (p *term) Token() token.Token          { return p.token }
func (p *term) Guards() []v1alpha1.Guard    { return p.guards }

func (p *term) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *term) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errLost
}

func newTerm(t testing.TB, lease, text string) *term {
	t.Helper()
	parsed, err := token.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return &term{
		lease: types.NamespacedName{Namespace: "reports", Name: lease}, token: parsed,
		guards: []v1alpha1.Guard{{APIGroups: []string{"example.com"}, Resources: []string{"reports/*"}}},
	}
}

// transportFunc is a transport.
type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
