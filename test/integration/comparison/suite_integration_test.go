// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package comparison_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/resourcelock"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

const (
	mergePatch = types.MergePatchType

	policyLabel      = "comparison.example.com/policy"
	policyAnnotation = "comparison.example.com/transitions"

	leaseSeconds = 3
	patience     = 90 * time.Second
)

// suite is a control plane with the product.
type suite struct {
	cluster *env.Environment
	admin   client.Client
}

func start(t *testing.T) *suite {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	cluster := env.StartT(t, env.Options{})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(cluster.InstallGuardedCRD(t.Context()))
	must(product.Install(t.Context(), cluster))
	manager, err := product.StartManager(t.Context(), cluster, testr.New(t))
	must(err)
	t.Cleanup(func() { must(manager.Stop()) })
	admin, err := env.Client(cluster.Config())
	must(err)
	s := &suite{cluster: cluster, admin: admin}
	must(s.installPolicy(t.Context()))
	return s
}

// installPolicy installs what those write who protect objects by hand: the number of handovers on an object must not fall.
func (s *suite) installPolicy(ctx context.Context) error {
	number := func(o string) string {
		return "(has(" + o + ".metadata.annotations) && '" + policyAnnotation + "' in " + o + ".metadata.annotations ? int(" + o + ".metadata.annotations['" + policyAnnotation + "']) : 0)"
	}
	written := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "comparison"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{env.GuardedGroup}, APIVersions: []string{"*"}, Resources: []string{"reports", "reports/status"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: "oldObject == null || " + number("object") + " >= " + number("oldObject"),
				Message:    "an older leader wrote this",
			}},
		},
	}
	if err := s.admin.Create(ctx, written); err != nil {
		return err
	}
	return s.admin.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "comparison"},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "comparison", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{policyLabel: "true"}}},
		},
	})
}

// worker is a candidate: a process that can be paused. Everything that it sends goes through its wire.
type worker struct {
	name, namespace string
	way             *way
	base            *rest.Config
	wire            *wire

	elector     *leaderelection.LeaderElector
	fencedLock  *resourcelock.Lock
	client      client.Client
	leads       chan struct{}
	transitions atomic.Int64
	term        atomic.Pointer[fenced.Possession]
}

// config is the worker's configuration, without the way's wrapping.
func (w *worker) config() *rest.Config {
	config := rest.CopyConfig(w.base)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &wiredTransport{w.wire, next} })
	return config
}

// elect makes a worker and lets it run for the lead.
func (s *suite) elect(t *testing.T, way *way, namespace, name string) *worker {
	t.Helper()
	w := &worker{name: name, namespace: namespace, way: way, base: s.cluster.Config(), wire: newWire(), leads: make(chan struct{})}
	lock, err := way.lock(w)
	if err != nil {
		t.Fatal(err)
	}
	w.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: name,
		LeaseDuration: leaseSeconds * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: w.begin,
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	config := w.config()
	if way.wrap != nil {
		config = way.wrap(w, config)
	}
	if w.client, err = env.Client(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.elector.Run(ctx) }()
	t.Cleanup(func() { w.wire.resume(); cancel(); <-ended })
	return w
}

// begin takes note of the term that has begun.
func (w *worker) begin(ctx context.Context) {
	defer close(w.leads)
	if w.fencedLock != nil {
		if term, err := fenced.OfLock(w.fencedLock); err == nil {
			w.term.Store(&term)
		}
		return
	}
	// By a lock of its own: that of the elector is for one goroutine.
	lock, err := onLease(w)
	if err != nil {
		return
	}
	if record, _, err := lock.Get(ctx); err == nil {
		w.transitions.Store(int64(record.LeaderTransitions) + 1)
	}
}

func (w *worker) awaitLead(t *testing.T) {
	t.Helper()
	select {
	case <-w.leads:
	case <-time.After(patience):
		t.Fatalf("%s does not lead", w.name)
	}
}

// tell lets a leader compute its writes, pauses it after its last check and before they leave, lets a successor take over
// and write, lets the leader go on, and returns what became of its writes.
func (s *suite) tell(t *testing.T, way *way) map[string]outcome {
	t.Helper()
	namespace := s.cluster.CreateNamespace(t, way.labels)
	if way.fenced {
		lease := env.NewLease(namespace, leaseName, func(l *v1alpha1.FencedLease) { l.Spec.LeaseDurationSeconds = leaseSeconds })
		if err := product.CreateLease(t.Context(), s.admin, lease); err != nil {
			t.Fatal(err)
		}
	}
	a := s.elect(t, way, namespace, "a")
	a.awaitLead(t)
	objects := map[string]*unstructured.Unstructured{}
	for i, f := range failures {
		o := report(namespace, "report-"+strconv.Itoa(i))
		if !f.write.absent {
			a.mark(o)
			if err := a.client.Create(t.Context(), o); err != nil {
				t.Fatalf("create the object: %v", err)
			}
		}
		objects[f.name] = o
	}

	a.wire.pause()
	var sent sync.WaitGroup
	errs := make([]error, len(failures))
	for i, f := range failures {
		sent.Go(func() {
			if errs[i] = checkLeads(a.elector); errs[i] == nil {
				errs[i] = f.write.send(t.Context(), a, objects[f.name].DeepCopy())
			}
		})
	}
	a.wire.awaitHeld(t, len(failures))

	b := s.elect(t, way, namespace, "b")
	b.awaitLead(t)
	for _, f := range failures {
		if f.write.successor {
			b.overwrite(t, objects[f.name])
		}
	}
	a.wire.resume()
	sent.Wait()

	outcomes := map[string]outcome{}
	for i, f := range failures {
		outcomes[f.name] = stopped
		if f.write.landed(s.stored(t, objects[f.name])) {
			outcomes[f.name] = lands
		}
		if (errs[i] == nil) != (outcomes[f.name] == lands) {
			t.Errorf("%s %s, and the leader was told: %v", f.name, outcomes[f.name], errs[i])
		}
		t.Logf("%s: %s: %v", f.name, outcomes[f.name], errs[i])
	}
	return outcomes
}

// overwrite is a write of the successor.
func (w *worker) overwrite(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	current := o.DeepCopy()
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(o), current); err != nil {
		t.Fatal(err)
	}
	set(current, later, "spec", "value")
	w.mark(current)
	if err := w.client.Update(t.Context(), current); err != nil {
		t.Fatalf("write of the successor: %v", err)
	}
}

// stored returns the object as it is stored, or nil.
func (s *suite) stored(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	current := o.DeepCopy()
	err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(o), current)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return current
}

// wire holds all requests of a process back while it is paused, as SIGSTOP does.
type wire struct {
	mu     sync.Mutex
	paused chan struct{} // closed at the end of the pause; nil if there is none
	writes int           // writes of the worker's client that are held
}

func newWire() *wire { return &wire{} }

func (w *wire) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = make(chan struct{})
}

func (w *wire) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused != nil {
		close(w.paused)
		w.paused = nil
	}
}

// awaitHeld waits until n writes have come as far as the wire.
func (w *wire) awaitHeld(t *testing.T, n int) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.writes == n, nil
	})
	if err != nil {
		t.Fatalf("wait until %d writes are on their way: %v", n, err)
	}
}

func (w *wire) pass(r *http.Request) error {
	w.mu.Lock()
	paused := w.paused
	if paused != nil && isReport(r) && r.Method != http.MethodGet {
		w.writes++
	}
	w.mu.Unlock()
	if paused == nil {
		return nil
	}
	select {
	case <-paused:
		return nil
	case <-r.Context().Done():
		if isReport(r) {
			return r.Context().Err()
		}
		// A paused process does not even notice that its time is over.
		<-paused
		return fmt.Errorf("after the pause: %w", r.Context().Err())
	}
}

func isReport(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/apis/"+env.GuardedGroup+"/")
}

type wiredTransport struct {
	wire *wire
	next http.RoundTripper
}

func (w *wiredTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := w.wire.pass(r); err != nil {
		return nil, err
	}
	return w.next.RoundTrip(r)
}
