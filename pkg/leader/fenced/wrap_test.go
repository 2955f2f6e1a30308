// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

// script is a transport that keeps what it was sent and answers as told.
type script struct {
	mu       sync.Mutex
	requests []*http.Request
	answers  []reply
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, req)
	next := reply{code: http.StatusOK, body: "{}"}
	if len(s.answers) > 0 {
		next, s.answers = s.answers[0], s.answers[1:]
	}
	if next.first != nil {
		next.first()
	}
	if next.err != nil {
		return nil, next.err
	}
	return next.response(), nil
}

// reply is an answer, or an error in place of one.
type reply struct {
	code  int
	body  string
	again bool
	err   error
	// first is called before the answer arrives.
	first func()
}

func (r reply) response() *http.Response {
	header := http.Header{"Content-Type": {"application/json"}}
	if r.again {
		header.Set("Retry-After", "0")
	}
	return &http.Response{StatusCode: r.code, Header: header, Body: io.NopCloser(strings.NewReader(r.body))}
}

func (s *script) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for _, r := range s.requests {
		line := r.Method + " " + r.URL.Path
		for _, name := range []string{"Impersonate-User", "Impersonate-Uid", "Impersonate-Group"} {
			for _, v := range r.Header.Values(name) {
				line += " " + strings.TrimPrefix(name, "Impersonate-") + "=" + v
			}
		}
		var extras []string
		for name, values := range r.Header {
			if strings.HasPrefix(name, "Impersonate-Extra-") {
				extras = append(extras, strings.ToLower(strings.TrimPrefix(name, "Impersonate-Extra-"))+"="+strings.Join(values, ","))
			}
		}
		for _, key := range []string{"token.fencedlease.io%2fone", "token.fencedlease.io%2ftwo", "scopes"} {
			for _, e := range extras {
				if strings.HasPrefix(e, key+"=") {
					line += " " + e
				}
			}
		}
		lines = append(lines, line)
	}
	return lines
}

const whoami = `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"alice",` +
	`"groups":["writers","system:authenticated"],"extra":{"scopes":["x"]}}}}`

func do(t *testing.T, config *rest.Config, method string) error {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "https://api.invalid/things", bytes.NewReader([]byte("{}")))
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(req)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func TestWrapImpersonatesTheCaller(t *testing.T) {
	one, two := newTerm(t, "one", "5.aaaaaaaa"), newTerm(t, "two", "9.bbbbbbbb")
	const review = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews"
	for name, test := range map[string]struct {
		impersonate rest.ImpersonationConfig
		wrap        func(*rest.Config) *rest.Config
		answers     []reply
		methods     []string
		want        []string
	}{
		"reads go as they are": {
			wrap:    func(c *rest.Config) *rest.Config { return fenced.Wrap(c, one) },
			methods: []string{http.MethodGet, http.MethodHead, http.MethodOptions},
			want:    []string{"GET /things", "HEAD /things", "OPTIONS /things"},
		},
		"writes ask once who the caller is": {
			wrap:    func(c *rest.Config) *rest.Config { return fenced.Wrap(c, one) },
			answers: []reply{{code: http.StatusCreated, body: whoami}},
			methods: []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, "ODD"},
			want: []string{
				review, "POST /things User=alice Group=writers token.fencedlease.io%2fone=5.aaaaaaaa",
				"PUT /things User=alice Group=writers token.fencedlease.io%2fone=5.aaaaaaaa",
				"PATCH /things User=alice Group=writers token.fencedlease.io%2fone=5.aaaaaaaa",
				"DELETE /things User=alice Group=writers token.fencedlease.io%2fone=5.aaaaaaaa",
				"ODD /things User=alice Group=writers token.fencedlease.io%2fone=5.aaaaaaaa",
			},
		},
		"a service account is impersonated by its name alone": {
			wrap:    func(c *rest.Config) *rest.Config { return fenced.Wrap(c, one) },
			answers: []reply{{code: http.StatusCreated, body: `{"status":{"userInfo":{"username":"system:serviceaccount:reports:worker","uid":"1","groups":["system:serviceaccounts","system:authenticated"]}}}`}},
			methods: []string{http.MethodPost},
			want:    []string{review, "POST /things User=system:serviceaccount:reports:worker token.fencedlease.io%2fone=5.aaaaaaaa"},
		},
		"a user who is named is not asked for": {
			wrap: func(c *rest.Config) *rest.Config {
				return fenced.Wrap(c, one, fenced.AsUser(rest.ImpersonationConfig{
					UserName: "bob", UID: "7", Groups: []string{"g"}, Extra: map[string][]string{"scopes": {"a", "b"}},
				}))
			},
			methods: []string{http.MethodGet, http.MethodPost},
			want:    []string{"GET /things", "POST /things User=bob Uid=7 Group=g token.fencedlease.io%2fone=5.aaaaaaaa scopes=a,b"},
		},
		"a configuration that impersonates goes on to do so, also for reads": {
			impersonate: rest.ImpersonationConfig{UserName: "carol", UID: "8", Groups: []string{"h"}, Extra: map[string][]string{"scopes": {"c"}}},
			wrap: func(c *rest.Config) *rest.Config {
				return fenced.Wrap(c, one, fenced.AsUser(rest.ImpersonationConfig{UserName: "bob"}))
			},
			methods: []string{http.MethodGet, http.MethodPost},
			want: []string{
				"GET /things User=carol Uid=8 Group=h scopes=c",
				"POST /things User=carol Uid=8 Group=h token.fencedlease.io%2fone=5.aaaaaaaa scopes=c",
			},
		},
		"two leases are carried together": {
			wrap:    func(c *rest.Config) *rest.Config { return fenced.Wrap(fenced.Wrap(c, one), two) },
			answers: []reply{{code: http.StatusOK, body: "{}"}, {code: http.StatusCreated, body: whoami}},
			methods: []string{http.MethodGet, http.MethodPost},
			want: []string{
				"GET /things", review,
				"POST /things User=alice Group=writers token.fencedlease.io%2fone=5.aaaaaaaa token.fencedlease.io%2ftwo=9.bbbbbbbb",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{answers: test.answers}
			config := &rest.Config{Host: "https://api.invalid", Transport: s, Impersonate: test.impersonate}
			wrapped := test.wrap(config)
			if config.WrapTransport != nil {
				t.Error("the configuration that was passed in has changed")
			}
			for _, method := range test.methods {
				if err := do(t, wrapped, method); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(test.want, s.sent()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestWrapRefusesASecondTokenOfOneLease(t *testing.T) {
	s := &script{}
	config := &rest.Config{Host: "https://api.invalid", Transport: s}
	user := fenced.AsUser(rest.ImpersonationConfig{UserName: "bob"})
	err := do(t, fenced.Wrap(fenced.Wrap(config, newTerm(t, "one", "5.aaaaaaaa"), user), newTerm(t, "one", "6.bbbbbbbb"), user), http.MethodPost)
	if err == nil || !strings.Contains(err.Error(), `carry token 5.aaaaaaaa of FencedLease reports/one: the request carries "6.bbbbbbbb" already`) {
		t.Errorf("error is %v", err)
	}
	if sent := s.sent(); len(sent) != 0 {
		t.Errorf("sent %v", sent)
	}
}

func TestWrapAsksAgainAfterAFailure(t *testing.T) {
	s := &script{answers: []reply{
		{err: errors.New("network down")},
		{code: http.StatusForbidden, body: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no right"}`},
		{code: http.StatusCreated, body: `{"status":{"userInfo":{}}}`},
		{code: http.StatusCreated, body: whoami},
	}}
	wrapped := fenced.Wrap(&rest.Config{Host: "https://api.invalid", Transport: s}, newTerm(t, "one", "5.aaaaaaaa"))
	for _, want := range []string{"network down", "no right", "names no user", ""} {
		err := do(t, wrapped, http.MethodPost)
		if want == "" {
			if err != nil {
				t.Errorf("after an answer: %v", err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "who the caller is (SelfSubjectReview") {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	if sent := s.sent(); len(sent) != 5 {
		t.Errorf("sent %v", sent)
	}
}

func TestWrapSendsNothingAfterTheEnd(t *testing.T) {
	p := newTerm(t, "one", "5.aaaaaaaa")
	s := &script{answers: []reply{
		{code: http.StatusCreated, body: whoami},
		// The term ends while the client waits to send the write once more.
		{code: http.StatusTooManyRequests, body: "{}", again: true, first: p.end},
	}}
	c, err := kubernetes.NewForConfig(fenced.Wrap(&rest.Config{Host: "https://api.invalid", Transport: s}, p))
	if err != nil {
		t.Fatal(err)
	}
	write := func() error {
		return c.CoreV1().ConfigMaps("reports").Delete(t.Context(), "x", metav1.DeleteOptions{})
	}
	var ended *fenced.EndedError
	for range 2 {
		err = write()
		if !errors.As(err, &ended) || !errors.Is(err, fenced.ErrTermEnded) || !errors.Is(err, errLost) || !fenced.IsFenced(err) {
			t.Fatalf("error is %v", err)
		}
	}
	if sent := s.sent(); len(sent) != 2 {
		t.Errorf("sent %v", sent)
	}
	// To read is no offence.
	if _, err = c.CoreV1().ConfigMaps("reports").Get(t.Context(), "x", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if !apierrors.IsForbidden(ended) && apierrors.ReasonForError(ended) != "Fenced" {
		t.Errorf("reason is %s", apierrors.ReasonForError(ended))
	}
}

func TestAnEndedTermIsNoConflict(t *testing.T) {
	p := newTerm(t, "one", "5.aaaaaaaa")
	p.err = apierrors.NewConflict(reports, "weekly", errors.New("lost"))
	tries := 0
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		tries++
		return do(t, fenced.Wrap(&rest.Config{Host: "https://api.invalid", Transport: &script{}}, p), http.MethodPost)
	})
	if tries != 1 || !fenced.IsFenced(err) {
		t.Errorf("tried %d times, error is %v", tries, err)
	}
}

func TestWrapLeavesOtherAnswersAsTheyAre(t *testing.T) {
	long := `{"kind":"Status","apiVersion":"v1","message":"` + strings.Repeat("x", 100<<10) + `"}`
	user := fenced.AsUser(rest.ImpersonationConfig{UserName: "bob"})
	for name, body := range map[string]string{
		"text": "no", "another right": `{"kind":"Status","apiVersion":"v1","code":403,"message":"User \"bob\" cannot create resource \"reports\"","details":{"kind":"reports"}}`,
		"very long": long, "empty": "",
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{answers: []reply{{code: http.StatusForbidden, body: body}}}
			c, err := rest.HTTPClientFor(fenced.Wrap(&rest.Config{Host: "https://api.invalid", Transport: s}, newTerm(t, "one", "5.aaaaaaaa"), user))
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://api.invalid/things", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(response.Body)
			if err != nil || string(got) != body {
				t.Errorf("read %d bytes of %d, error %v", len(got), len(body), err)
			}
			if err := response.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
