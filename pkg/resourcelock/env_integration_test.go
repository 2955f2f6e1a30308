//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	rl "k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/resourcelock"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
	byhand "github.com/fencedlease/fencedlease/test/env/operator"
)

const (
	// timeout bounds waits; none of them takes nearly as long.
	timeout = time.Minute

	namespace = "default"

	// leaseSeconds is long enough that a busy machine does not lose a lease by itself.
	leaseSeconds = 4
)

// server is the API server that the tests of this package share. Each test has leases of its own.
var server *env.Environment

// leases counts the leases of all tests, so that each has a name of its own.
var leases atomic.Int64

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	logf.SetLogger(logr.Discard()) // controller-runtime's client asks for one
	var err error
	if server, err = start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := server.Stop(); err != nil {
			fmt.Fprintf(os.Stderr, "stop the API server: %v\n", err)
		}
	}()
	return m.Run()
}

func start() (*env.Environment, error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // no test runs yet
	defer cancel()
	e, err := env.Start(ctx, env.Options{WithoutEndpoints: true})
	if err != nil {
		return nil, err
	}
	if err := e.InstallCRDs(ctx); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// operator is what an operator and the controller do to the lease of a test.
type operator struct {
	*byhand.Operator
	t    *testing.T
	name string
}

// newOperator names a lease that does not exist yet.
func newOperator(t *testing.T) *operator {
	t.Helper()
	name := fmt.Sprintf("lease-%d", leases.Add(1))
	return &operator{Operator: byhand.New(t, server.Config(), namespace, name), t: t, name: name}
}

// newLease creates the lease of a test and sets its floor, as the controller would.
func newLease(t *testing.T, mutations ...func(*v1alpha1.FencedLease)) *operator {
	t.Helper()
	o := newOperator(t)
	o.create(mutations...)
	o.SetFloor()
	return o
}

func (o *operator) create(mutations ...func(*v1alpha1.FencedLease)) {
	o.t.Helper()
	o.CreateLease(append([]func(*v1alpha1.FencedLease){func(l *v1alpha1.FencedLease) {
		l.Spec.LeaseDurationSeconds = leaseSeconds
	}}, mutations...)...)
}

// raw returns the lease as the server stores it, without anything that Go types would drop.
func (o *operator) raw() map[string]any {
	o.t.Helper()
	lease := &unstructured.Unstructured{}
	lease.SetGroupVersionKind(v1alpha1.Kind)
	if err := o.Get(o.t.Context(), client.ObjectKey{Namespace: namespace, Name: o.name}, lease); err != nil {
		o.t.Fatalf("read the lease: %v", err)
	}
	return lease.Object
}

func possessionOf(term resourcelock.Term) byhand.Possession {
	return byhand.Possession{Generation: term.Generation, Term: term.ID, Token: term.Token().String(), Identity: term.Holder}
}

// lock returns a lock on the lease; wrap sees its requests.
func (o *operator) lock(identity string, wrap func(http.RoundTripper) http.RoundTripper, options ...resourcelock.Options) *resourcelock.Lock {
	o.t.Helper()
	return o.lockOf(server.Config(), identity, wrap, options...)
}

func (o *operator) lockOf(config *rest.Config, identity string, wrap func(http.RoundTripper) http.RoundTripper, options ...resourcelock.Options) *resourcelock.Lock {
	o.t.Helper()
	config = rest.CopyConfig(config)
	if wrap != nil {
		config.Wrap(wrap)
	}
	opts := resourcelock.Options{RenewDeadline: timeout}
	if len(options) > 0 {
		opts = options[0]
	}
	lock, err := resourcelock.New(config, namespace, o.name, identity, opts)
	if err != nil {
		o.t.Fatal(err)
	}
	return lock
}

// acquire does what an elector does that judged the lease to be free.
func acquire(ctx context.Context, lock *resourcelock.Lock) error {
	if _, _, err := lock.Get(ctx); err != nil {
		return err
	}
	return lock.Update(ctx, recordFor(lock.Identity()))
}

func mustAcquire(t *testing.T, lock *resourcelock.Lock) resourcelock.Term {
	t.Helper()
	err := acquire(t.Context(), lock)
	for apierrors.IsConflict(err) && t.Context().Err() == nil {
		err = acquire(t.Context(), lock) // the holder renewed between the read and the write
	}
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	term, ok := lock.Term()
	if !ok {
		t.Fatal("the lock holds no term after its acquisition")
	}
	return term
}

// recordFor is the record that an elector sends; an empty identity releases.
func recordFor(identity string) rl.LeaderElectionRecord {
	now := metav1.Now()
	return rl.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: leaseSeconds, AcquireTime: now, RenewTime: now}
}

// leader is a process with client-go's elector over a lock.
type leader struct {
	t       *testing.T
	lock    *resourcelock.Lock
	cancel  context.CancelFunc
	started chan resourcelock.Term
	stopped chan struct{} // closed when Run has returned
}

func (o *operator) elect(lock *resourcelock.Lock, releaseOnCancel bool) *leader {
	o.t.Helper()
	ctx, cancel := context.WithCancel(o.t.Context())
	l := &leader{t: o.t, lock: lock, cancel: cancel, started: make(chan resourcelock.Term, 1), stopped: make(chan struct{})}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: o.name, ReleaseOnCancel: releaseOnCancel,
		LeaseDuration: leaseSeconds * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: 200 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				term, _ := lock.Term()
				l.started <- term
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		o.t.Fatal(err)
	}
	go func() {
		defer close(l.stopped)
		elector.Run(ctx)
	}()
	o.t.Cleanup(func() { cancel(); <-l.stopped })
	return l
}

// leads waits until the elector leads.
func (l *leader) leads() resourcelock.Term {
	l.t.Helper()
	select {
	case term := <-l.started:
		if term.ID == "" {
			l.t.Fatal("the elector began to lead and the lock had no term")
		}
		return term
	case <-time.After(timeout):
		l.t.Fatal("timed out waiting for the elector to lead")
		return resourcelock.Term{}
	}
}

// ends waits until the elector has stopped by itself or by cancel.
func (l *leader) ends() {
	l.t.Helper()
	select {
	case <-l.stopped:
	case <-time.After(timeout):
		l.t.Fatal("timed out waiting for the elector to stop")
	}
	if term, ok := l.lock.Term(); ok {
		l.t.Errorf("the elector has stopped and the lock still shows the term %s", term.Token())
	}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, timeout, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		t.Fatalf("wait until %s: %v", what, err)
	}
}

func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// wire is a transport that a test can hold up or cut.
type wire struct {
	next http.RoundTripper

	mu sync.Mutex
	// hold, if set, says which requests wait for release before they are sent.
	hold    func(*http.Request) bool
	held    chan struct{} // gets a value for each request that waits
	release chan struct{}
	// drop, if set, says of which requests the answer is thrown away after the server has acted.
	drop  func(*http.Request) bool
	count map[string]int // requests by method
}

var errCut = errors.New("connection was cut")

func newWire() *wire {
	return &wire{held: make(chan struct{}, 16), release: make(chan struct{}), count: map[string]int{}}
}

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	w.next = next
	return w
}

func (w *wire) set(hold, drop func(*http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold, w.drop = hold, drop
	w.count = map[string]int{}
}

func (w *wire) requests(method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count[method]
}

func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.count[request.Method]++
	hold := w.hold != nil && w.hold(request)
	drop := w.drop != nil && w.drop(request)
	w.mu.Unlock()
	if hold {
		w.held <- struct{}{}
		<-w.release
	}
	response, err := w.next.RoundTrip(request)
	if err == nil && drop {
		_ = response.Body.Close()
		return nil, errCut
	}
	return response, err
}

func patches(r *http.Request) bool { return r.Method == http.MethodPatch }

// mustToken parses the token of a status.
func mustToken(t *testing.T, text string) token.Token {
	t.Helper()
	parsed, err := token.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
