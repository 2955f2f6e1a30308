// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// bearerTerm is a term that a test ends.
type bearerTerm struct{ ended error }

func (p *bearerTerm) Lease() types.NamespacedName {
	return types.NamespacedName{Namespace: "reports", Name: "report-writer"}
}
func (p *bearerTerm) Token() token.Token       { return token.Token{Generation: 34, Term: "bbbbbbbb"} }
func (p *bearerTerm) Err() error               { return p.ended }
func (p *bearerTerm) Guards() []v1alpha1.Guard { return nil }

func TestWithBearerToken(t *testing.T) {
	t.Parallel()
	type seen struct{ Method, Authorization, Impersonate, Body string }
	var got []seen
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, seen{r.Method, r.Header.Get("Authorization"), r.Header.Get("Impersonate-User"), string(body)})
	}))
	defer server.Close()

	term, present := &bearerTerm{}, "first"
	config := &rest.Config{
		Host: server.URL, BearerToken: "own", Username: "jane", Password: "secret", Impersonate: rest.ImpersonationConfig{UserName: "john"},
		UserAgent: "test", QPS: 7,
	}
	bearing := fenced.WithBearerToken(config, term, func() string { return present })
	if bearing.UserAgent != "test" || bearing.QPS != 7 || config.BearerToken != "own" || config.WrapTransport != nil {
		t.Errorf("copy %+v of %+v", bearing, config)
	}
	client, err := rest.HTTPClientFor(bearing)
	if err != nil {
		t.Fatal(err)
	}
	send := func(method string) error {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		if request.Header.Get("Authorization") != "" {
			t.Error("the caller's request was changed")
		}
		return err
	}
	if err := errors.Join(send(http.MethodGet), send(http.MethodPatch)); err != nil {
		t.Fatal(err)
	}
	present = "second"
	if err := send(http.MethodDelete); err != nil {
		t.Fatal(err)
	}
	term.ended = errors.New("lost")
	if err := send(http.MethodGet); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		err := send(method)
		var ended *fenced.EndedError
		if !errors.As(err, &ended) || !fenced.IsFenced(err) || ended.Token != term.Token() {
			t.Errorf("%s after the end: %v", method, err)
		}
	}
	want := []seen{
		{"GET", "Bearer first", "", "body"}, {"PATCH", "Bearer first", "", "body"}, {"DELETE", "Bearer second", "", "body"}, {"GET", "Bearer second", "", "body"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
