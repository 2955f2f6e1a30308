// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// A credential has no room for an operation. Either something else carries it, or nothing is sent.
func TestABearerTokenAloneCarriesNoOperation(t *testing.T) {
	t.Parallel()
	var sent []string
	config := fenced.WithBearerToken(&rest.Config{Host: "https://localhost", QPS: -1}, &operated{}, func() string { return "text" })
	below := config.WrapTransport
	config.WrapTransport = func(http.RoundTripper) http.RoundTripper {
		return below(transportFunc(func(req *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			_, mark, _ := strings.Cut(string(body), `"token.fencedlease.io/report-writer":"`)
			mark, _, _ = strings.Cut(mark, `"`)
			_, mark, _ = strings.Cut(mark, "/")
			sent = append(sent, req.Method+" "+mark)
			kind := `"kind":"Report","apiVersion":"example.com/v1"`
			if strings.Contains(req.URL.Path, "/configmaps/") {
				kind = `"kind":"ConfigMap","apiVersion":"v1"`
			}
			return reply{code: http.StatusOK, body: `{` + kind + `,"metadata":{"name":"weekly"}}`}.response(), nil
		}))
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(reportKind, meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	plain, err := client.New(config, client.Options{Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	mine, others := (&held{}).Lease(), types.NamespacedName{Namespace: "reports", Name: "other"}
	ofMine, _ := withOperation(t, "import-17", mine)
	ofOthers, _ := withOperation(t, "import-17", others)
	writeAll := func(ctx context.Context, c client.Client) []error {
		unguarded := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "reports", Name: "weekly"}}
		return []error{
			c.Create(ctx, report("")), c.Update(ctx, report("")), c.Patch(ctx, report(""), merge()), c.Apply(ctx, configuration(report(""))),
			c.Delete(ctx, report("")), c.Status().Update(ctx, report("")), c.Status().Patch(ctx, report(""), merge()), c.Update(ctx, unguarded),
		}
	}
	for name, c := range map[string]client.Client{"plain": plain, "replaying": fenced.Replaying(plain, &operated{})} {
		for i, err := range writeAll(ofMine, c) {
			if !errors.Is(err, fenced.ErrOperationNotCarried) || !strings.Contains(err.Error(), "import-17") || fenced.IsFenced(err) {
				t.Errorf("%s, write %d: %v", name, i, err)
			}
		}
	}
	if len(sent) > 0 {
		t.Errorf("sent %v", sent)
	}
	if err := errors.Join(writeAll(ofOthers, plain)...); err != nil {
		t.Errorf("an operation of another lease: %v", err)
	}
	sent = nil
	if err := errors.Join(writeAll(ofMine, fenced.Client(plain, &operated{}))...); err != nil {
		t.Errorf("with an annotation besides: %v", err)
	}
	want := []string{
		"POST import-17", "PUT import-17", "PATCH import-17", "PATCH import-17", "PATCH delete", "DELETE ", "PUT import-17", "PATCH import-17", "PUT ",
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
