// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// PathGuarded is the path, up to the resourceVersion of the guards, of reviews of guarded writes but those to /status.
	PathGuarded = "/fence/"
	// PathStatus is the same for writes to /status.
	PathStatus = "/fence-status/"
	// PathStamp is the same for writes that may have to be marked for the credential that they are made with.
	PathStamp = "/fence-stamp/"

	// defaultTimeout bounds a review whose caller names no timeout: that of the API server.
	defaultTimeout = 10 * time.Second
	maxTimeout     = 30 * time.Second
	// answerShare is the part of the caller's time after which an answer is given, so that it still arrives.
	answerShare = 0.9
)

// auditSuffix ends the path of reviews for which only leases in Audit ask.
const auditSuffix = "/audit"

// Path returns the path of reviews by guards up to a resourceVersion. PathGuarded, PathStatus and PathStamp are prefixes.
// audit says that only leases in Audit ask for them: what cannot be judged is then admitted.
func Path(prefix, resourceVersion string, audit bool) string {
	path := prefix + resourceVersion
	if audit {
		path += auditSuffix
	}
	return path
}

// route is what the path says by which a review came.
type route struct {
	// version is the resourceVersion of the guards.
	version string
	// audit says that only leases in Audit ask.
	audit bool
}

type routeKey struct{}

func routeOf(ctx context.Context) route {
	r, _ := ctx.Value(routeKey{}).(route)
	return r
}

// guardsVersion returns the resourceVersion in the path by which a review came.
func guardsVersion(ctx context.Context) string { return routeOf(ctx).version }

// Register serves a handler's paths.
func Register(handler *Handler, register func(path string, handler http.Handler)) error {
	for path, handle := range map[string]admission.Handler{
		PathGuarded: handler, PathStatus: handler, PathStamp: admission.HandlerFunc(handler.Stamp),
	} {
		// The handler's own line says everything about a request. A logger for each would cost more than the decision.
		hook := &admission.Webhook{Handler: handle, LogConstructor: func(base logr.Logger, _ *admission.Request) logr.Logger { return base }}
		served, err := admission.StandaloneWebhook(hook.WithRecoverPanic(true), admission.StandaloneOptions{MetricsPath: path})
		if err != nil {
			return fmt.Errorf("build webhook %s: %w", path, err)
		}
		register(path, withReviewContext(path, served))
	}
	return nil
}

// withReviewContext gives each review the caller's deadline and what its path says.
func withReviewContext(prefix string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version, audit := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, prefix), auditSuffix)
		if version == "" || strings.Trim(version, "0123456789") != "" {
			http.Error(w, "the path must name the resourceVersion of the guards: "+prefix+"<resourceVersion>["+auditSuffix+"]", http.StatusNotFound)
			return
		}
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), routeKey{}, route{version, audit}), reviewTimeout(r))
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// reviewTimeout returns how long a review may take, from the timeout that API servers name in the query.
func reviewTimeout(r *http.Request) time.Duration {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || timeout <= 0 {
		if seconds, err := strconv.Atoi(r.URL.Query().Get("timeout")); err == nil && seconds > 0 {
			timeout = time.Duration(seconds) * time.Second
		} else {
			timeout = defaultTimeout
		}
	}
	return time.Duration(float64(min(timeout, maxTimeout)) * answerShare)
}
