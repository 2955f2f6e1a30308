// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package seal_fastpath_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/internal/leaseview"
	"github.com/fencedlease/fencedlease/internal/webhook/fencing"
	"github.com/fencedlease/fencedlease/test/env"
)

// valve holds back the events of a watch, so that what is filled from it stays as it is.
type valve struct {
	mu   sync.Mutex
	open chan struct{}
}

func newValve() *valve {
	v := &valve{open: make(chan struct{})}
	close(v.open)
	return v
}

func (v *valve) hold() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = make(chan struct{})
}

func (v *valve) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.open)
}

func (v *valve) passage() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.open
}

// held is a source whose watches pass through the valve. Its first list passes always.
type held struct {
	cache.ListerWatcher
	valve *valve
}

func (h held) Watch(options metav1.ListOptions) (watch.Interface, error) {
	from, err := h.ListerWatcher.Watch(options) //nolint:staticcheck // the source is asked as the view asks for it
	if err != nil {
		return nil, err
	}
	w := &heldWatch{from: from, events: make(chan watch.Event), stopped: make(chan struct{})}
	go w.run(h.valve)
	return w, nil
}

type heldWatch struct {
	from    watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

func (w *heldWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *heldWatch) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.from.Stop()
}

func (w *heldWatch) run(v *valve) {
	defer close(w.events)
	for event := range w.from.ResultChan() {
		select {
		case <-v.passage():
		case <-w.stopped:
			return
		}
		select {
		case w.events <- event:
		case <-w.stopped:
			return
		}
	}
}

// replica is one webhook as the manager runs it, with the real view of the leases behind a valve.
type replica struct {
	url      string
	ca       []byte
	valve    *valve
	view     *leaseview.View
	registry *prometheus.Registry
}

// nobody observes nothing.
type nobody struct{}

func (nobody) GenerationAhead(fencing.Sighting)                         {}
func (nobody) Overridden(*v1alpha1.FencedLease, string, string, string) {}

// anywhere knows no namespaces: no guard of this test asks for their labels.
type anywhere struct{}

func (anywhere) Cached(context.Context, string) (labels.Set, bool) { return nil, false }
func (anywhere) Live(context.Context, string) (labels.Set, error) {
	return nil, errors.New("not asked for")
}

func startReplica(t *testing.T, cluster *env.Environment) *replica {
	t.Helper()
	r := &replica{valve: newValve(), registry: prometheus.NewRegistry()}
	reader, err := leaseview.NewReader(cluster.Config())
	must(t, err)
	source, err := leaseview.NewSource(cluster.Config())
	must(t, err)
	reads, reviews := leaseview.NewMetrics(), fencing.NewMetrics()
	r.registry.MustRegister(reads, reviews)
	// An old copy is not replaced: how old it gets is what the test is about.
	r.view, err = leaseview.New(leaseview.Options{
		Reader: reader, Source: held{source, r.valve}, Metrics: reads, MaxLag: time.Hour, MaxSilence: time.Hour,
	})
	must(t, err)
	clientset, err := kubernetes.NewForConfig(cluster.Config())
	must(t, err)
	objects, err := metadata.NewForConfig(cluster.Config())
	must(t, err)
	handler := fencing.NewHandler(fencing.Options{
		Leases: r.view, Namespaces: anywhere{}, Objects: fencing.NewObjects(objects),
		Permissions: fencing.NewPermissions(clientset.AuthorizationV1().SubjectAccessReviews()),
		Observer:    nobody{}, Metrics: reviews, Clock: clock.RealClock{}, System: fence.DefaultSystemWriters(),
	})
	mux := http.NewServeMux()
	must(t, fencing.Register(handler, mux.Handle))
	r.serve(t, cluster, mux)

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.view.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	eventually(t, "the replica's copy", r.view.Ready)
	return r
}

func (r *replica) serve(t *testing.T, cluster *env.Environment, handler http.Handler) {
	t.Helper()
	cert, key, ca, err := cluster.ServingCertificate("127.0.0.1")
	must(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	must(t, err)
	port, err := cluster.Port()
	must(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	must(t, err)
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		must(t, server.Close())
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	r.url, r.ca = "https://127.0.0.1:"+strconv.Itoa(port), ca
}

// count returns the sum of a counter over all series whose labels have the given values.
func (r *replica) count(t *testing.T, name string, match map[string]string) int {
	t.Helper()
	families, err := r.registry.Gather()
	must(t, err)
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			found := 0
			for _, l := range metric.GetLabel() {
				if value, asked := match[l.GetName()]; asked && value == l.GetValue() {
					found++
				}
			}
			if found == len(match) {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return int(sum)
}

// reads is how often the replica has asked the store for a lease.
func (r *replica) reads(t *testing.T) int {
	t.Helper()
	return r.count(t, "fencedlease_lease_reads_total", nil)
}

// unread is how many writes the replica has admitted without that.
func (r *replica) unread(t *testing.T) int {
	t.Helper()
	return r.count(t, "fencedlease_reviews_total", map[string]string{"outcome": "allow", "reason": string(fence.SealedTerm)})
}

// sees returns an error until the replica's copy shows what is asked for.
func (r *replica) sees(lease *v1alpha1.FencedLease, check func(*v1alpha1.FencedLease) bool) func() error {
	return func() error {
		cached, known := r.view.Cached(types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name})
		if !known || !check(cached) {
			return fmt.Errorf("the copy has the lease: %v, and not as it is now", known)
		}
		return nil
	}
}
