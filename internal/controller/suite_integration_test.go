//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionapi "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/probe"
	"github.com/fencedlease/fencedlease/internal/webhook/fencing"
	"github.com/fencedlease/fencedlease/test/env"
)

const (
	managerNamespace = "fencedlease-system"
	// patience bounds every wait, far above what any needs.
	patience = 60 * time.Second
	poll     = 50 * time.Millisecond
)

// suite is a control plane with a webhook that admits everything but probes, and the controllers.
type suite struct {
	*testing.T
	// root is the test that the controllers live as long as.
	root   *testing.T
	env    *env.Environment
	client client.Client
	hook   *hook
	bundle []byte
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	return newSuiteOn(t, env.Options{APIServers: 2})
}

func newSuiteOn(t *testing.T, options env.Options) *suite {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	cluster := env.StartT(t, options)
	s := &suite{T: t, root: t, env: cluster}
	s.must(cluster.InstallCRDs(t.Context()))
	s.must(cluster.InstallGuardedCRD(t.Context()))
	var err error
	s.client, err = env.Client(cluster.Config())
	s.must(err)
	s.must(s.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: managerNamespace}}))
	s.must(s.client.Create(t.Context(), validationConfiguration()))
	s.hook = startHook(t, cluster)
	s.bundle = s.hook.ca
	return s
}

// in returns the suite for a subtest.
func (s *suite) in(t *testing.T) *suite {
	c := *s
	c.T = t
	return &c
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// running are controllers that run.
type running struct {
	metrics       *Metrics
	reports       *Reports
	bundleChanged chan event.GenericEvent
	stop          func()
}

// run starts the controllers and stops them at the end of the test, if not before.
func (s *suite) run(mutations ...func(*Options)) *running {
	s.Helper()
	return s.runAs(s.env.Config(), mutations...)
}

func (s *suite) runAs(config *rest.Config, mutations ...func(*Options)) *running {
	s.Helper()
	scheme, err := env.NewScheme()
	s.must(err)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
	})
	s.must(err)
	r := &running{metrics: NewMetrics(), reports: NewReports(), bundleChanged: make(chan event.GenericEvent)}
	opts := Options{
		Namespace: managerNamespace, Endpoint: Endpoint{URL: s.hook.url}, Bundle: func() []byte { return s.bundle },
		BundleChanged: r.bundleChanged, Metrics: r.metrics, Reports: r.reports,
		Debounce: 10 * time.Millisecond, ProbeInterval: 100 * time.Millisecond, ReprobeInterval: time.Hour, RescanInterval: time.Second,
		SkipNameValidation: true,
	}
	for _, mutate := range mutations {
		mutate(&opts)
	}
	s.must(SetupWithManager(mgr, opts))
	ctx, cancel := context.WithCancel(s.root.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				s.root.Errorf("run manager: %v", err)
			}
		})
	}
	s.root.Cleanup(r.stop)
	return r
}

// eventually waits until check returns nil.
func (s *suite) eventually(what string, check func() error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			s.Fatalf("%s: %v", what, err)
		case <-ticker.C:
		}
	}
}

// createLease creates a lease and waits until it has a floor.
func (s *suite) createLease(lease *v1alpha1.FencedLease) *v1alpha1.FencedLease {
	s.Helper()
	// Until the controllers have redirected the installed webhook configuration, the API server cannot call it.
	s.eventually("create a lease", func() error { return s.client.Create(s.Context(), lease) })
	s.eventually("floor of a new lease", func() error {
		s.refresh(lease)
		if lease.Status.GenerationFloor == nil {
			return fmt.Errorf("no floor")
		}
		return nil
	})
	return lease
}

// acquire takes a lease, however often the controller writes its status in between.
func (s *suite) acquire(lease *v1alpha1.FencedLease, holder string) {
	s.Helper()
	s.eventually("acquire a lease", func() error { return env.Acquire(s.Context(), s.client, lease, holder) })
}

// refresh reads an object from the API server.
func (s *suite) refresh(o client.Object) {
	s.Helper()
	s.must(s.client.Get(s.Context(), client.ObjectKeyFromObject(o), o))
}

// awaitCondition waits for a condition of the current spec generation.
func (s *suite) awaitCondition(lease *v1alpha1.FencedLease, conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
	s.Helper()
	var c *metav1.Condition
	s.eventually(conditionType+" "+string(status)+" "+reason, func() error {
		s.refresh(lease)
		c = meta.FindStatusCondition(lease.Status.Conditions, conditionType)
		if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != lease.Generation || lease.Status.ObservedGeneration != lease.Generation {
			return fmt.Errorf("conditions are %+v", lease.Status.Conditions)
		}
		return nil
	})
	return *c
}

func (s *suite) awaitReady(lease *v1alpha1.FencedLease) {
	s.Helper()
	s.awaitCondition(lease, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonInForce)
}

// registrationObjects returns empty objects with the names of the registration, and then of its protection.
func registrationObjects() []client.Object {
	return []client.Object{
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: GuardsName}},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: GuardsName}},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: MarksName}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: MarksName}},
		&admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: StampsName}},
		&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: StampsName}},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: RegistrationName}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: RegistrationName}},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: DefinitionsName}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: DefinitionsName}},
	}
}

// deleteDefinition deletes the definition of a kind that no lease guards any more, once the policy has heard of that.
func (s *suite) deleteDefinition(name string) {
	s.Helper()
	s.eventually("deletion of "+name, func() error {
		return s.client.Delete(s.Context(), definition(name))
	})
}

// versions returns uid and resourceVersion of the registration and of leases.
func (s *suite) versions(leases ...*v1alpha1.FencedLease) map[string]string {
	s.Helper()
	objects := append(registrationObjects(), &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ValidationName}})
	for _, lease := range leases {
		objects = append(objects, lease)
	}
	versions := map[string]string{}
	for _, o := range objects {
		s.refresh(o)
		versions[fmt.Sprintf("%T %s", o, client.ObjectKeyFromObject(o))] = string(o.GetUID()) + " " + o.GetResourceVersion()
	}
	return versions
}

// carrying returns a client whose requests carry tokens, by impersonating the user itself.
func (s *suite) carrying(extra map[string][]string) client.Client {
	s.Helper()
	config := s.env.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "writer", Groups: []string{"system:masters"}, Extra: extra}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &patient{s, next} })
	c, err := env.Client(config)
	s.must(err)
	return c
}

// patient repeats requests while an API server does not know the schema of a new kind yet, which its mutating policies need
// for what they match: it looks for new ones every five seconds.
type patient struct {
	s    *suite
	next http.RoundTripper
}

func (p *patient) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		response, err := p.next.RoundTrip(r)
		if err != nil || response.StatusCode != http.StatusServiceUnavailable {
			return response, err
		}
		if err := response.Body.Close(); err != nil {
			return nil, err
		}
		if r, err = again(r); err != nil {
			return nil, err
		}
		p.s.pause()
	}
}

// again returns a request with its body from the beginning.
func again(r *http.Request) (*http.Request, error) {
	r = r.Clone(r.Context())
	if r.GetBody == nil {
		return r, nil
	}
	var err error
	r.Body, err = r.GetBody()
	return r, err
}

// pause waits for a moment, or ends the test with its context.
func (s *suite) pause() {
	s.Helper()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	select {
	case <-ticker.C:
	case <-s.Context().Done():
		s.Fatal("the test has ended while a request was repeated")
	}
}

// report creates a Report with annotations.
func (s *suite) report(namespace, name string, annotations map[string]string) *unstructured.Unstructured {
	s.Helper()
	o := env.NewReport(namespace, name, "v")
	o.SetAnnotations(annotations)
	s.must(s.client.Create(s.Context(), o))
	return o
}

// validationConfiguration is what the installation has for FencedLeases themselves. Nothing in these tests calls it.
func validationConfiguration() *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ValidationName},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "policy.fencedleases.coordination.fencedlease.io",
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
				Namespace: managerNamespace, Name: "webhook-service", Path: ptr.To("/validate"),
			}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{"v1alpha1"}, Resources: []string{"fencedleases"}},
			}},
			SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// hook is a webhook that refuses probes and admits everything else, and counts what it is asked.
type hook struct {
	url string
	ca  []byte

	mu    sync.Mutex
	calls map[string]int
	// failing says that every call but those of probes fails.
	failing bool
}

func startHook(t *testing.T, cluster *env.Environment) *hook {
	t.Helper()
	cert, key, ca, err := cluster.ServingCertificate()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	port, err := cluster.Port()
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	listener, err := tls.Listen("tcp", address, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	h := &hook{url: "https://" + address, ca: ca, calls: map[string]int{}}
	server := &http.Server{Handler: h, ReadHeaderTimeout: patience}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionapi.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request := review.Request
	response := &admissionapi.AdmissionResponse{UID: request.UID, Allowed: true}
	_, hash, is := probe.Parse(request.Name)
	if is && (strings.HasPrefix(r.URL.Path, fencing.PathGuarded) || strings.HasPrefix(r.URL.Path, fencing.PathStatus)) {
		response.Allowed = false
		response.Result = &metav1.Status{Code: http.StatusForbidden, Reason: v1alpha1.StatusReasonFenced, Message: probe.Refusal(hash)}
	} else if request.Resource.Resource != v1alpha1.Resource.Resource || r.URL.Path != "/validate" {
		if h.count(request) {
			http.Error(w, "down", http.StatusInternalServerError)
			return
		}
	}
	review.Request, review.Response = nil, response
	_ = json.NewEncoder(w).Encode(review)
}

// down makes the webhook fail every call but those of probes, or not.
func (h *hook) down(failing bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failing = failing
}

// count counts a call and reports whether it is to fail.
func (h *hook) count(r *admissionapi.AdmissionRequest) (failing bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	what := r.Resource.Resource
	if r.SubResource != "" {
		what += "/" + r.SubResource
	}
	h.calls[fmt.Sprintf("%s %s %s", r.Operation, what, r.Namespace)]++
	return h.failing
}

// take returns what was asked since the last take.
func (h *hook) take() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.calls
	h.calls = map[string]int{}
	return calls
}
