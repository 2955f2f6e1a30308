// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controls

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/robustness/pause"
)

const (
	leaseName = "report-writer"
	// generationAnnotation is where writers say under which number of handovers they lead.
	generationAnnotation = "fencing.example.com/generation"

	leaseDuration = 2 * time.Second
	patience      = 30 * time.Second
	pollInterval  = 20 * time.Millisecond
)

// Election is client-go's leader election on a Lease, and nothing that fences.
type Election struct {
	Cluster *env.Environment
}

var _ pause.System = &Election{}

// Begin implements pause.System.
func (e *Election) Begin(ctx context.Context, namespace string, _ pause.Strategy) (pause.Story, error) {
	return e.begin(ctx, namespace)
}

func (e *Election) begin(ctx context.Context, namespace string) (*electionStory, error) {
	clientset, err := kubernetes.NewForConfig(e.Cluster.Config())
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	s := &electionStory{cluster: e.Cluster, clientset: clientset, namespace: namespace, transitions: map[pause.Holder]int32{}}
	// The electors live for longer than the call.
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if s.a, err = s.elect(ctx, pause.A); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// electionStory is one Lease.
type electionStory struct {
	cluster     *env.Environment
	clientset   kubernetes.Interface
	namespace   string
	transitions map[pause.Holder]int32

	ctx     context.Context //nolint:containedctx // the life of the electors, not of a call
	cancel  context.CancelFunc
	running sync.WaitGroup
	a       *gate
}

var _ pause.Story = &electionStory{}

// gate stops the requests of a process.
type gate struct {
	closed chan struct{}
	close  func()
}

func newGate() *gate {
	g := &gate{closed: make(chan struct{})}
	g.close = sync.OnceFunc(func() { close(g.closed) })
	return g
}

var errPaused = errors.New("the process is paused")

func (g *gate) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		select {
		case <-g.closed:
			// A paused process sends nothing until its requests have no meaning any more.
			<-r.Context().Done()
			return nil, errPaused
		default:
			return next.RoundTrip(r)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// elect runs an elector and returns when it leads.
func (s *electionStory) elect(ctx context.Context, holder pause.Holder) (*gate, error) {
	g := newGate()
	config := s.cluster.Config()
	config.Wrap(g.wrap)
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	leads := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: s.namespace, Name: leaseName},
			Client:     clientset.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: string(holder)},
		},
		Name: string(holder), LeaseDuration: leaseDuration, RenewDeadline: leaseDuration * 3 / 4, RetryPeriod: leaseDuration / 10,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(leads) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make elector: %w", err)
	}
	s.running.Go(func() { elector.Run(s.ctx) })
	select {
	case <-leads:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(patience):
		return nil, fmt.Errorf("%s does not lead", holder)
	}
	lease, err := s.clientset.CoordinationV1().Leases(s.namespace).Get(ctx, leaseName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get lease: %w", err)
	}
	s.transitions[holder] = ptr.Deref(lease.Spec.LeaseTransitions, 0)
	return g, nil
}

// Key implements pause.Story.
func (s *electionStory) Key() string { return generationAnnotation }

// Fresh implements pause.Story.
func (s *electionStory) Fresh(holder pause.Holder, _ bool) string {
	return strconv.Itoa(int(s.transitions[holder]))
}

// OwnerOf implements pause.Story.
func (s *electionStory) OwnerOf(value string) pause.Holder {
	for holder := range s.transitions {
		if s.Fresh(holder, false) == value {
			return holder
		}
	}
	return pause.Holder(value)
}

// Config implements pause.Story.
func (s *electionStory) Config(_ pause.Holder, carrier pause.Carrier) (*rest.Config, error) {
	if carrier != pause.Annotation && carrier != pause.None {
		return nil, errors.New("there is no such carrier")
	}
	return s.cluster.Config(), nil
}

// TakeOver implements pause.Story: A is paused, and B is elected when the lease has expired.
func (s *electionStory) TakeOver(ctx context.Context) error {
	s.a.close()
	_, err := s.elect(ctx, pause.B)
	return err
}

// Seal implements pause.Story.
func (s *electionStory) Seal(context.Context) error {
	return errors.New("there are no seals")
}

// Admissions implements pause.Story.
func (s *electionStory) Admissions(string) int { return -1 }

// Close implements pause.Story.
func (s *electionStory) Close() {
	s.cancel()
	s.running.Wait()
}

func until(ctx context.Context, done func() bool) error {
	return wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(context.Context) (bool, error) { return done(), nil })
}

// class is the kind of a verb in the report.
func class(c pause.Cell) string {
	name := c.Verb.Name
	for _, prefix := range []string{"status", "scale", "delete"} {
		if strings.HasPrefix(name, prefix) {
			return prefix
		}
	}
	if strings.Contains(name, "create") {
		return "create"
	}
	return "update"
}
