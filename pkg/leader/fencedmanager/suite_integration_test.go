// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fencedmanager_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fencedmanager"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

const (
	leaseName    = "report-operator"
	leaseSeconds = 4
	// patience bounds every wait, far above what any needs.
	patience = 90 * time.Second
)

// pageKind is the kind of the children: guarded, too.
var pageKind = schema.GroupVersionKind{Group: env.GuardedGroup, Version: env.ReportVersion, Kind: "Page"}

// suite is a control plane with the product.
type suite struct {
	*testing.T
	cluster *env.Environment
	admin   client.Client
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	s := &suite{T: t, cluster: env.StartT(t, env.Options{})}
	s.must(s.cluster.InstallGuardedCRD(t.Context()))
	s.must(s.cluster.InstallGuardedCRD(t.Context(), func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "pages", Singular: "page", Kind: pageKind.Kind, ListKind: "PageList"}
	}))
	s.must(product.Install(t.Context(), s.cluster))
	m, err := product.StartManager(t.Context(), s.cluster, testr.New(t))
	s.must(err)
	t.Cleanup(func() { s.must(m.Stop()) })
	s.admin, err = env.Client(s.cluster.Config())
	s.must(err)
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

// lease creates a lease on Reports and Pages in a namespace of its own.
func (s *suite) lease() *v1alpha1.FencedLease {
	s.Helper()
	lease := env.NewLease(s.cluster.CreateNamespace(s.T), leaseName, func(l *v1alpha1.FencedLease) {
		l.Spec.LeaseDurationSeconds = leaseSeconds
		l.Spec.Guards[0].Resources = []string{"reports/*", "pages/*"}
	})
	s.must(product.CreateLease(s.Context(), s.admin, lease))
	return lease
}

func (s *suite) eventually(what string, condition func() bool) {
	s.Helper()
	err := wait.PollUntilContextTimeout(s.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		s.Fatalf("wait until %s: %v", what, err)
	}
}

func (s *suite) read(o *unstructured.Unstructured) *unstructured.Unstructured {
	s.Helper()
	current := o.DeepCopy()
	s.must(s.admin.Get(s.Context(), client.ObjectKeyFromObject(o), current))
	return current
}

// operator is one replica of an operator: its manager, with a reconciler that renders Reports to Pages.
type operator struct {
	*fencedmanager.Manager
	s    *suite
	name string
	wire *wire
	stop func()

	mu   sync.Mutex
	seen []string // the values of the Reports that reconciles have read
}

// start starts a replica.
func (s *suite) start(lease *v1alpha1.FencedLease, name string, options fencedmanager.Options, setup ...func(*operator)) *operator {
	s.Helper()
	o := &operator{s: s, name: name, wire: &wire{}}
	restConfig := s.cluster.Config()
	restConfig.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{o.wire, next} })
	scheme, err := env.NewScheme()
	s.must(err)
	options.Namespace, options.Name, options.Identity = lease.Namespace, lease.Name, name
	o.Manager, err = fencedmanager.New(restConfig, manager.Options{
		Scheme: scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		LeaseDuration: ptr.To(leaseSeconds * time.Second), RenewDeadline: ptr.To(3 * time.Second), RetryPeriod: ptr.To(200 * time.Millisecond),
		LeaderElectionReleaseOnCancel: true, GracefulShutdownTimeout: ptr.To(patience),
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{lease.Namespace: {}}},
		Client:     client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	}, options)
	s.must(err)
	s.must(builder.ControllerManagedBy(o.Manager).Named("reports").For(object(env.ReportKind(env.ReportVersion))).Complete(o))
	for _, f := range setup {
		f(o)
	}
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.Start(ctx) }()
	o.stop = sync.OnceFunc(func() { o.wire.resume(); cancel(); <-ended })
	s.Cleanup(o.stop)
	return o
}

// Reconcile renders a Report: a Page, a ConfigMap that nobody guards, and the Report's status.
func (o *operator) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	report := object(env.ReportKind(env.ReportVersion))
	if err := o.GetClient().Get(ctx, req.NamespacedName, report); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	value, _, _ := unstructured.NestedString(report.Object, "spec", "value")
	o.mu.Lock()
	o.seen = append(o.seen, value)
	o.mu.Unlock()
	if done, _, _ := unstructured.NestedString(report.Object, "status", "result"); done == value {
		return reconcile.Result{}, nil
	}
	page := object(pageKind)
	page.SetNamespace(report.GetNamespace())
	page.SetName(report.GetName())
	if _, err := ctrl.CreateOrUpdate(ctx, o.GetClient(), page, func() error {
		return unstructured.SetNestedField(page.Object, value, "spec", "value")
	}); err != nil {
		return reconcile.Result{}, err
	}
	copied := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: report.GetNamespace(), Name: report.GetName()}}
	if err := o.GetClient().Create(ctx, copied); err != nil && !apierrors.IsAlreadyExists(err) {
		return reconcile.Result{}, err
	}
	if err := unstructured.SetNestedField(report.Object, value, "status", "result"); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, o.GetClient().Status().Update(ctx, report)
}

func (o *operator) values() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.seen...)
}

func (o *operator) awaitElected() {
	o.s.Helper()
	select {
	case <-o.Elected():
	case <-time.After(patience):
		o.s.Fatalf("%s is not elected", o.name)
	}
}

func object(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	return o
}

// wire is between a replica and the API server.
type wire struct {
	mu sync.Mutex
	// paused holds requests back, silent what watches of Reports send. Each is closed at the end; nil if there is none.
	paused, silent chan struct{}
	// listed gets a value for each consistent list of Reports.
	listed chan struct{}
	writes int
}

func (w *wire) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = make(chan struct{})
}

func (w *wire) silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent, w.listed = make(chan struct{}), make(chan struct{}, 1)
}

// resume ends what holds anything back.
func (w *wire) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, held := range []*chan struct{}{&w.paused, &w.silent} {
		if *held != nil {
			close(*held)
			*held = nil
		}
	}
}

// sent returns how many writes of guarded objects have come as far as the wire.
func (w *wire) sent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

type transport struct {
	wire *wire
	next http.RoundTripper
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	guarded := strings.HasPrefix(r.URL.Path, "/apis/"+env.GuardedGroup+"/")
	query := r.URL.Query()
	t.wire.mu.Lock()
	paused, listed := t.wire.paused, t.wire.listed
	if guarded && r.Method != http.MethodGet {
		t.wire.writes++
	}
	t.wire.mu.Unlock()
	if paused != nil {
		<-paused // a paused process does not notice that its time is over
	}
	if listed != nil && strings.HasSuffix(r.URL.Path, "/reports") && r.Method == http.MethodGet && !query.Has("watch") && !query.Has("resourceVersion") {
		select {
		case listed <- struct{}{}:
		default:
		}
	}
	response, err := t.next.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/reports") && query.Has("watch") {
		response.Body = &slowBody{t.wire, response.Body}
	}
	return response, err
}

// slowBody is what a watch sends.
type slowBody struct {
	wire *wire
	io.ReadCloser
}

func (b *slowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.wire.mu.Lock()
	silent := b.wire.silent
	b.wire.mu.Unlock()
	if silent != nil {
		<-silent
	}
	return n, err
}
