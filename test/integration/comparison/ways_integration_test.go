// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package comparison_test

import (
	"errors"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	rl "k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/resourcelock"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// way is a way of keeping the late writes of a leader from landing.
type way struct {
	name string
	// guarded and labels are what the namespace of the objects needs.
	fenced bool
	labels map[string]string
	// lock returns the lock of a candidate.
	lock func(w *worker) (rl.Interface, error)
	// wrap makes the configuration of a candidate's writes.
	wrap func(w *worker, config *rest.Config) *rest.Config
	// marks returns annotations for an object that a candidate writes.
	marks func(w *worker) map[string]string
	// conditioned says that every write names the resourceVersion that it is based on, where it can.
	conditioned bool
}

// The check that each leader makes before a write, "am I still the leader?", is in worker.send.
var (
	clientGo = &way{name: "client-go election", lock: onLease}
	gate     = &way{name: "gate in the client", lock: onLease, wrap: withGate}
	versions = &way{name: "resourceVersion", lock: onLease, conditioned: true}
	policy   = &way{name: "policy by hand", lock: onLease, labels: map[string]string{policyLabel: "true"}, marks: withTransitions}

	fencedLease = &way{name: "FencedLease", fenced: true, lock: onFencedLease, wrap: withToken}
)

const leaseName = "report-writer"

func onLease(w *worker) (rl.Interface, error) {
	client, err := kubernetes.NewForConfig(w.config())
	if err != nil {
		return nil, err
	}
	return rl.New(rl.LeasesResourceLock, w.namespace, leaseName, client.CoreV1(), client.CoordinationV1(), rl.ResourceLockConfig{Identity: w.name})
}

// withGate refuses requests in the client once the election is over or has not been renewed for its duration: at the last
// place of the process where it can be asked.
func withGate(w *worker, config *rest.Config) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !w.elector.IsLeader() || w.elector.Check(0) != nil {
				return nil, errGate
			}
			return next.RoundTrip(r)
		})
	})
	return config
}

var errGate = errors.New("the gate is closed")

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// withTransitions marks objects with the number of handovers, as those do who write such a policy by hand.
func withTransitions(w *worker) map[string]string {
	return map[string]string{policyAnnotation: strconv.Itoa(int(w.transitions.Load()))}
}

func onFencedLease(w *worker) (rl.Interface, error) {
	lock, err := resourcelock.New(w.config(), w.namespace, leaseName, w.name, resourcelock.Options{})
	w.fencedLock = lock
	return lock, err
}

func withToken(w *worker, config *rest.Config) *rest.Config { return fenced.Wrap(config, firstTerm{w}) }

// firstTerm is the possession that a worker's client presents: known when its election is won.
type firstTerm struct{ w *worker }

var _ fenced.Possession = firstTerm{}

func (f firstTerm) held() fenced.Possession     { return *f.w.term.Load() }
func (f firstTerm) Lease() types.NamespacedName { return f.held().Lease() }
func (f firstTerm) Token() token.Token          { return f.held().Token() }
func (f firstTerm) Err() error                  { return f.held().Err() }
func (f firstTerm) Guards() []v1alpha1.Guard    { return f.held().Guards() }

// checkLeads is what every leader asks before it writes.
func checkLeads(elector *leaderelection.LeaderElector) error {
	if !elector.IsLeader() {
		return errors.New("not the leader")
	}
	return nil
}
