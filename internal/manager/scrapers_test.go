// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
)

// TestScrapers shows the answers of the metrics endpoint for what an API server says of a scraper. That a real one says so is
// shown by the tests on an API server.
func TestScrapers(t *testing.T) {
	const (
		known   = `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":"scraper","groups":["g"],"extra":{"k":["v"]}}}}`
		unknown = `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"error":"invalid bearer token"}}`
		allowed = `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`
		denied  = `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}`
	)
	for name, c := range map[string]struct {
		authorization, token, access string
		code                         int
	}{
		"no credentials":                     {code: http.StatusUnauthorized, token: known, access: allowed},
		"another scheme":                     {authorization: "Basic eDp5", code: http.StatusUnauthorized, token: known, access: allowed},
		"a scheme without a token":           {authorization: "Bearer ", code: http.StatusUnauthorized, token: known, access: allowed},
		"a token that nobody knows":          {authorization: "Bearer x", code: http.StatusUnauthorized, token: unknown, access: allowed},
		"a user who may not":                 {authorization: "Bearer x", code: http.StatusForbidden, token: known, access: denied},
		"a user who may":                     {authorization: "bearer x", code: http.StatusOK, token: known, access: allowed},
		"a token that cannot be reviewed":    {authorization: "Bearer x", code: http.StatusInternalServerError, access: allowed},
		"a user whose access is not decided": {authorization: "Bearer x", code: http.StatusInternalServerError, token: known},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := c.token
				if strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") {
					answer = c.access
					body, err := io.ReadAll(r.Body)
					for _, part := range []string{`"user":"scraper"`, `"groups":["g"]`, `"extra":{"k":["v"]}`, `"path":"/metrics"`, `"verb":"get"`} {
						if !strings.Contains(string(body), part) {
							t.Errorf("the review of access has no %s: %s, %v", part, body, err)
						}
					}
				}
				w.Header().Set("Content-Type", "application/json")
				if answer == "" {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				_, _ = io.WriteString(w, answer)
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
			filter, err := filterScrapers(config, server.Client())
			if err != nil {
				t.Fatal(err)
			}
			served := false
			handler, err := filter(logr.Discard(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }))
			if err != nil {
				t.Fatal(err)
			}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
			if c.authorization != "" {
				request.Header.Set("Authorization", c.authorization)
			}
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			if recorder.Code != c.code || served != (c.code == http.StatusOK) {
				t.Errorf("want %d, got %d, served: %t", c.code, recorder.Code, served)
			}
		})
	}
}
