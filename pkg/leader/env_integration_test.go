//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader"
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
	if kubeconfig := os.Getenv(victimVariable); kubeconfig != "" {
		os.Exit(beVictim(kubeconfig))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
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
	return operatorOn(t, server)
}

func operatorOn(t *testing.T, cluster *env.Environment) *operator {
	t.Helper()
	name := fmt.Sprintf("lease-%d", leases.Add(1))
	return &operator{Operator: byhand.New(t, cluster.Config(), namespace, name), t: t, name: name}
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

func possessionOf(term *leader.Term) byhand.Possession {
	info := term.Info()
	return byhand.Possession{Generation: info.Generation, Term: info.ID, Token: info.Token().String(), Identity: info.Holder}
}

func released(p byhand.Possession) byhand.Possession {
	p.Identity = ""
	return p
}

// candidate is a process with an elector.
type candidate struct {
	t       *testing.T
	name    string
	elector *leader.Elector
	wire    *wire
	events  *record.FakeRecorder
	metrics *signals
	waiting chan error
	// started has each term when its work begins.
	started chan *leader.Term
	// finish ends the present work with an error; ignoring makes work not end with its context.
	finish   chan error
	ignoring atomic.Bool
	cancel   context.CancelFunc
	done     chan error
}

// candidate starts an elector on the lease. Changes change its options.
func (o *operator) candidate(name string, changes ...func(*leader.Options)) *candidate {
	o.t.Helper()
	c := o.newCandidate(name, changes...)
	c.run()
	return c
}

func (o *operator) newCandidate(name string, changes ...func(*leader.Options)) *candidate {
	o.t.Helper()
	c := &candidate{
		t: o.t, name: name, wire: newWire(), events: record.NewFakeRecorder(1000), metrics: &signals{},
		waiting: make(chan error, 1000), started: make(chan *leader.Term, 1000), finish: make(chan error),
	}
	options := leader.Options{
		Config: server.Config(), Namespace: namespace, Name: o.name, Identity: name,
		EventRecorder: c.events, Metrics: c.metrics, OnWaiting: func(reason error) { c.waiting <- reason },
	}
	for _, change := range changes {
		change(&options)
	}
	options.Config.Wrap(c.wire.wrap)
	options.Config.Dial = c.wire.dial
	var err error
	if c.elector, err = leader.New(options); err != nil {
		o.t.Fatal(err)
	}
	return c
}

// run starts Run. It may be called again after Run has returned.
func (c *candidate) run() {
	c.t.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(c.t.Context(), logr.Discard()))
	done := make(chan error, 1)
	c.cancel, c.done = cancel, done
	go func() {
		done <- c.elector.Run(ctx, func(ctx context.Context, term *leader.Term) error {
			c.started <- term
			end := ctx.Done()
			if c.ignoring.Load() {
				end = nil
			}
			select {
			case <-end:
				return ctx.Err()
			case err := <-c.finish:
				return err
			}
		})
		close(done)
	}()
	c.t.Cleanup(func() {
		cancel()
		for range done {
			continue
		}
	})
}

// leads waits until the candidate's work begins.
func (c *candidate) leads() *leader.Term {
	c.t.Helper()
	select {
	case term := <-c.started:
		return term
	case err := <-c.done:
		c.t.Fatalf("Run of %s returned: %v", c.name, err)
	case <-time.After(timeout):
		c.t.Fatalf("timed out waiting for %s to lead", c.name)
	}
	return nil
}

// returns waits until Run has returned, and returns its error.
func (c *candidate) returns() error {
	c.t.Helper()
	select {
	case err := <-c.done:
		return err
	case <-time.After(timeout):
		c.t.Fatalf("timed out waiting for Run of %s to return", c.name)
		return nil
	}
}

// waits returns when the candidate has told that it waits for the reason.
func (c *candidate) waits(what string, is func(error) bool) error {
	c.t.Helper()
	for {
		select {
		case reason := <-c.waiting:
			if is(reason) {
				return reason
			}
		case <-time.After(timeout):
			c.t.Fatalf("timed out waiting for %s to wait for %s", c.name, what)
			return nil
		}
	}
}

func (c *candidate) waitsFor(reason error) error {
	c.t.Helper()
	return c.waits(reason.Error(), func(err error) bool { return errors.Is(err, reason) })
}

func (c *candidate) waitsForHolder(holder string) {
	c.t.Helper()
	_ = c.waits("holder "+holder, func(err error) bool {
		var held *leader.HeldError
		return errors.As(err, &held) && held.HolderIdentity == holder
	})
}

// event waits for an event that begins with the text.
func (c *candidate) event(want string) string {
	c.t.Helper()
	var got []string
	for {
		select {
		case event := <-c.events.Events:
			if strings.HasPrefix(event, want) {
				return event
			}
			got = append(got, event)
		case <-time.After(timeout):
			c.t.Fatalf("timed out waiting for the event %q of %s, got %q", want, c.name, got)
			return ""
		}
	}
}

// ended waits for the end of a term.
func ended(t *testing.T, term *leader.Term) error {
	t.Helper()
	select {
	case <-term.Done():
	case <-time.After(timeout):
		t.Fatalf("timed out waiting for the end of term %s", term.Token())
	}
	if err := term.Err(); err != nil {
		return err
	}
	t.Fatalf("term %s is done and has no error", term.Token())
	return nil
}

func lostTerm(t *testing.T, err error) *leader.LostError {
	t.Helper()
	var lost *leader.LostError
	if !errors.As(err, &lost) {
		t.Fatalf("want a LostError, got %v", err)
	}
	return lost
}

// signals are the metrics of a candidate.
type signals struct {
	mu        sync.Mutex
	leading   bool
	vacancies []time.Duration
	gaps      []time.Duration
	losses    []leader.LossReason
}

func (s *signals) Leading(leads bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leading = leads
}

func (s *signals) Acquired(vacancy time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vacancies = append(s.vacancies, vacancy)
}

func (s *signals) Renewed(gap time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaps = append(s.gaps, gap)
}

func (s *signals) Lost(reason leader.LossReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losses = append(s.losses, reason)
}

func (s *signals) renewals() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.gaps)
}

func (s *signals) lost() []leader.LossReason {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]leader.LossReason(nil), s.losses...)
}

func (s *signals) leads() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leading
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

// noLeaks fails the test if what follows leaves goroutines behind, those of connections included: an elector closes its own.
// The operator's client has its connection by now.
func noLeaks(t *testing.T, also ...goleak.Option) {
	t.Helper()
	also = append(also, goleak.IgnoreCurrent())
	t.Cleanup(func() { goleak.VerifyNone(t, also...) })
}

// sharedConnections are those that client-go keeps for all clients of a configuration.
func sharedConnections() goleak.Option {
	return goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run")
}

func int64String(n int64) string { return strconv.FormatInt(n, 10) }

func copyAll(to io.Writer, from io.Reader) (int64, error) { return io.Copy(to, from) }

func selectorOf(report string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"report": report}}
}
