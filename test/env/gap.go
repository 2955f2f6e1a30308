// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// maxReview bounds the body of a review.
const maxReview = 16 << 20

// AdmissionGap is a validating webhook that admits everything, and keeps chosen requests waiting until the test lets them
// go on: it opens the gap between another webhook's check and the commit. API servers call validating webhooks of one
// request at the same time, so a request that waits here may not have been answered there yet; what the mutating phase
// decides is decided before. A request can wait for at most 25 seconds, then it goes on.
type AdmissionGap struct {
	name      string
	clientset kubernetes.Interface
	server    *http.Server
	served    chan error
	closing   chan struct{}

	mu       sync.Mutex
	holds    []*Hold
	requests []*admissionv1.AdmissionRequest
}

// Hold keeps one request waiting, the first that matches.
type Hold struct {
	match    func(*admissionv1.AdmissionRequest) bool
	entered  chan *admissionv1.AdmissionRequest
	released chan struct{}
	release  sync.Once
	gap      *AdmissionGap
}

// Entered gives the request as soon as it waits.
func (h *Hold) Entered() <-chan *admissionv1.AdmissionRequest { return h.entered }

// Release lets the request go on, and disarms the Hold if none has come.
func (h *Hold) Release() {
	h.release.Do(func() {
		close(h.released)
		h.gap.mu.Lock()
		defer h.gap.mu.Unlock()
		h.gap.holds = slices.DeleteFunc(h.gap.holds, func(other *Hold) bool { return other == h })
	})
}

// StartReportGap is StartAdmissionGap for all writes of Reports and their subresources, as far as they are named, such as
// reports/status.
func (e *Environment) StartReportGap(ctx context.Context, resources ...string) (*AdmissionGap, error) {
	return e.StartAdmissionGap(ctx, admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{GuardedGroup}, APIVersions: []string{"*"}, Resources: resources},
	})
}

// StartAdmissionGap registers the webhook for rules, and returns when every API server calls it.
func (e *Environment) StartAdmissionGap(ctx context.Context, rules ...admissionregistrationv1.RuleWithOperations) (*AdmissionGap, error) {
	clientset, err := kubernetes.NewForConfig(e.admin)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	pair, err := e.ca.server([]string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.cert, pair.key)
	if err != nil {
		return nil, fmt.Errorf("load serving certificate: %w", err)
	}
	port, err := e.ports.take()
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen for reviews: %w", err)
	}
	gap := &AdmissionGap{
		name: "gap-" + strconv.Itoa(port), clientset: clientset, served: make(chan error, 1), closing: make(chan struct{}),
	}
	gap.server = &http.Server{
		Handler:           gap,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
		// API servers leave connections open in ways that net/http reports.
		ErrorLog: stdlog.New(io.Discard, "", 0),
	}
	go func() { gap.served <- gap.server.ServeTLS(listener, "", "") }()
	if err := gap.register(ctx, localURL("https", port), e.ca.pem, rules); err != nil {
		return nil, errors.Join(err, gap.Close(ctx))
	}
	for i := range e.apiServers {
		if err := gap.awaitInForce(ctx, e, i); err != nil {
			return nil, errors.Join(err, gap.Close(ctx))
		}
	}
	return gap, nil
}

// register writes the configuration: one webhook for the rules, and one that refuses a dry-run of a probe object, by which
// awaitInForce sees that an API server has the configuration.
func (g *AdmissionGap) register(ctx context.Context, url string, ca []byte, rules []admissionregistrationv1.RuleWithOperations) error {
	webhook := func(name, path string, rules []admissionregistrationv1.RuleWithOperations) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{
			Name:                    name + "." + g.name + ".example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: ptr.To(url + path), CABundle: ca},
			Rules:                   rules,
			FailurePolicy:           ptr.To(admissionregistrationv1.Fail),
			MatchPolicy:             ptr.To(admissionregistrationv1.Equivalent),
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          ptr.To[int32](30),
			AdmissionReviewVersions: []string{"v1"},
		}
	}
	probe := webhook("probe", "/probe", []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}})
	probe.MatchConditions = []admissionregistrationv1.MatchCondition{{
		Name: "probe", Expression: "request.dryRun && object.metadata.name == '" + g.name + "'",
	}}
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: g.name},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{webhook("hold", "/hold", rules), probe},
	}
	_, err := g.clientset.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, configuration, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("register gap: %w", err)
	}
	return nil
}

// awaitInForce returns when API server i refuses the probe.
func (g *AdmissionGap) awaitInForce(ctx context.Context, e *Environment, i int) error {
	clientset, err := kubernetes.NewForConfig(e.Via(i, e.admin))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
	var last error
	err = wait.PollUntilContextTimeout(ctx, pollInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		_, last = clientset.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return last != nil && strings.Contains(last.Error(), g.name+" is in force"), nil
	})
	if err != nil {
		return fmt.Errorf("wait for gap on API server %d: %w (last answer: %w)", i, err, last)
	}
	return nil
}

// Hold keeps the next request that matches waiting until it is released. Later requests pass, also the same one when the
// API server asks again after a conflict.
func (g *AdmissionGap) Hold(match func(*admissionv1.AdmissionRequest) bool) *Hold {
	h := &Hold{match: match, entered: make(chan *admissionv1.AdmissionRequest, 1), released: make(chan struct{}), gap: g}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds = append(g.holds, h)
	return h
}

// Requests returns all requests that have come so far, oldest first: one that was asked about twice is there twice.
func (g *AdmissionGap) Requests() []*admissionv1.AdmissionRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.requests)
}

// Close lets every request go on and removes the webhook.
func (g *AdmissionGap) Close(ctx context.Context) error {
	err := g.clientset.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, g.name, metav1.DeleteOptions{})
	close(g.closing)
	err = errors.Join(err, g.server.Shutdown(ctx))
	if served := <-g.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("close gap: %w", err)
	}
	return nil
}

// ServeHTTP answers a review.
func (g *AdmissionGap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(io.LimitReader(r.Body, maxReview)).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "body is no review", http.StatusBadRequest)
		return
	}
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if r.URL.Path == "/probe" {
		response.Allowed = false
		response.Result = &metav1.Status{Message: g.name + " is in force"}
	} else {
		g.wait(r.Context(), review.Request)
	}
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	// The API server is gone if this fails; nothing is left to tell it.
	_ = json.NewEncoder(w).Encode(review)
}

// wait records the request, and waits if a Hold matches it.
func (g *AdmissionGap) wait(ctx context.Context, request *admissionv1.AdmissionRequest) {
	g.mu.Lock()
	g.requests = append(g.requests, request)
	i := slices.IndexFunc(g.holds, func(h *Hold) bool { return h.match(request) })
	var hold *Hold
	if i >= 0 {
		hold = g.holds[i]
		g.holds = slices.Delete(g.holds, i, i+1)
	}
	g.mu.Unlock()
	if hold == nil {
		return
	}
	hold.entered <- request
	select {
	case <-hold.released:
	case <-g.closing:
	case <-ctx.Done():
	case <-time.After(25 * time.Second):
	}
}
