// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package publish_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/leader/publish"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// patience bounds waits; none of them takes nearly as long.
const patience = time.Minute

var (
	// cluster is the API server, with the product installed, that the tests of this package share.
	cluster *env.Environment
	// admin is a client that presents no token.
	admin client.Client
	// gap can hold updates of Reports between their checks and their commit.
	gap *env.AdmissionGap
	// names counts the references that tests have made.
	names atomic.Int64

	configMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	reports    = env.ReportKind(env.ReportVersion)
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	logf.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // no test runs yet
	defer stop()
	end, err := start(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := end(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func start(ctx context.Context) (end func() error, err error) {
	if cluster, err = env.Start(ctx, env.Options{}); err != nil {
		return nil, err
	}
	fail := func(err error) (func() error, error) { return nil, errors.Join(err, cluster.Stop()) }
	if err := errors.Join(cluster.InstallGuardedCRD(ctx), product.Install(ctx, cluster)); err != nil {
		return fail(err)
	}
	manager, err := product.StartManager(ctx, cluster, logr.Discard())
	if err != nil {
		return fail(err)
	}
	if admin, err = env.Client(cluster.Config()); err != nil {
		return fail(errors.Join(err, manager.Stop()))
	}
	gap, err = cluster.StartAdmissionGap(ctx, admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{env.GuardedGroup}, APIVersions: []string{"*"}, Resources: []string{"reports"}},
	})
	if err != nil {
		return fail(errors.Join(err, manager.Stop()))
	}
	return func() error {
		return errors.Join(gap.Close(context.Background()), manager.Stop(), cluster.Stop()) //nolint:forbidigo // no test runs any more
	}, nil
}

// term is a possession whose holder believes in it for ever, as one that is paused does.
type term struct {
	lease  types.NamespacedName
	token  token.Token
	guards []v1alpha1.Guard
}

func (t *term) Lease() types.NamespacedName { return t.lease }
func (t *term) Token() token.Token          { return t.token }
func (*term) Err() error                    { return nil }
func (t *term) Guards() []v1alpha1.Guard    { return t.guards }

// carrier makes a client that writes under a term.
type carrier func(t *testing.T, config *rest.Config, possession *term) client.Client

func byAnnotation(t *testing.T, config *rest.Config, possession *term) client.Client {
	t.Helper()
	return fenced.Client(newClient(t, config), possession)
}

func byRequest(t *testing.T, config *rest.Config, possession *term) client.Client {
	t.Helper()
	return newClient(t, fenced.Wrap(config, possession))
}

var carriers = map[string]carrier{"the token in an annotation": byAnnotation, "the token in the request": byRequest}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := env.Client(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// site is a lease that guards Reports in a namespace of its own, and a reference: a Report whose spec.value names what is
// published.
type site struct {
	*testing.T
	namespace, name string
	lease           *v1alpha1.FencedLease
	carry           carrier
}

func newSite(t *testing.T, carry carrier) *site {
	t.Helper()
	s := &site{T: t, namespace: cluster.CreateNamespace(t), carry: carry}
	s.lease = env.NewLease(s.namespace, "publisher")
	s.must(product.CreateLease(t.Context(), admin, s.lease))
	return s.next(t)
}

// next returns the site with another reference, which does not exist yet.
func (s *site) next(t *testing.T) *site {
	n := *s
	n.T, n.name = t, "front-"+strconv.FormatInt(names.Add(1), 10)
	return &n
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// take lets a holder take the lease and returns its term.
func (s *site) take(holder string) *term {
	s.Helper()
	var last error
	err := wait.PollUntilContextTimeout(s.Context(), 10*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = env.Acquire(ctx, admin, s.lease, holder)
		return last == nil, nil
	})
	if err != nil {
		s.Fatalf("take the lease: %v: %v", err, last)
	}
	parsed, err := token.Parse(env.Token(s.lease, ""))
	s.must(err)
	return &term{lease: client.ObjectKeyFromObject(s.lease), token: parsed, guards: s.lease.Spec.Guards}
}

// publisher returns a publisher of a term, whose requests pass a transport.
func (s *site) publisher(possession *term, wrap ...func(http.RoundTripper) http.RoundTripper) *publish.Publisher {
	s.Helper()
	config := rest.CopyConfig(cluster.Config())
	for _, w := range wrap {
		config.Wrap(w)
	}
	p, err := publish.New(publish.Options{
		Client: s.carry(s.T, config, possession), Possession: possession,
		Reference: env.NewReport(s.namespace, s.name, ""), Refers: refers,
		Kinds: []schema.GroupVersionKind{configMaps, reports},
	})
	s.must(err)
	return p
}

func value(reference client.Object) string {
	o, ok := reference.(*unstructured.Unstructured)
	if !ok {
		return ""
	}
	text, _, _ := unstructured.NestedString(o.Object, "spec", "value")
	return text
}

func refers(reference, staged client.Object) bool { return value(reference) == staged.GetName() }

// referTo switches the reference to a name.
func referTo(name string) func(client.Object) error {
	return func(reference client.Object) error {
		o, ok := reference.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("the reference is a %T", reference)
		}
		return unstructured.SetNestedField(o.Object, name, "spec", "value")
	}
}

func (s *site) configMap(name string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{Data: map[string]string{"text": "all is well"}}
	c.Namespace, c.Name = s.namespace, name
	return c
}

// stage stages a page, which is guarded, and two things that it needs, which are not.
func (s *site) stage(ctx context.Context, p *publish.Publisher) (*publish.Staging, error) {
	staging := p.Begin()
	for _, obj := range []client.Object{
		s.configMap(staging.Name("style")), s.configMap(staging.Name("picture")), env.NewReport(s.namespace, staging.Name("page"), "text"),
	} {
		if err := staging.Create(ctx, obj); err != nil {
			return staging, err
		}
	}
	return staging, nil
}

// publish stages and publishes.
func (s *site) publish(ctx context.Context, p *publish.Publisher) (*publish.Staging, error) {
	staging, err := s.stage(ctx, p)
	if err != nil {
		return staging, err
	}
	return staging, staging.Publish(ctx, referTo(staging.Name("page")))
}

// work is what a leader does: twice, so that something is replaced.
func (s *site) work(ctx context.Context, p *publish.Publisher) error {
	if err := p.Ensure(ctx, env.NewReport(s.namespace, s.name, "")); err != nil {
		return err
	}
	if _, err := p.Collect(ctx); err != nil {
		return err
	}
	for range 2 {
		if _, err := s.publish(ctx, p); err != nil {
			return err
		}
		if _, err := p.Collect(ctx); err != nil {
			return err
		}
	}
	return nil
}

// shown returns what the reference names: nothing if there is no reference.
func (s *site) shown() string {
	s.Helper()
	reference := env.NewReport(s.namespace, s.name, "")
	s.must(client.IgnoreNotFound(admin.Get(s.Context(), client.ObjectKeyFromObject(reference), reference)))
	return value(reference)
}

// stagings returns the names of the objects that are staged for the reference, by their staging.
func (s *site) stagings() map[string][]string {
	s.Helper()
	found := map[string][]string{}
	for _, kind := range []schema.GroupVersionKind{configMaps, reports} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind + "List"})
		s.must(admin.List(s.Context(), list, client.InNamespace(s.namespace), client.HasLabels{publish.LabelStaging}))
		for _, item := range list.Items {
			if item.GetAnnotations()[publish.AnnotationReference] == s.namespace+"/"+s.name {
				id := item.GetLabels()[publish.LabelStaging]
				found[id] = append(found[id], item.GetName())
			}
		}
	}
	return found
}

// whole checks that what the reference names is there, with all that was staged with it.
func (s *site) whole() {
	s.Helper()
	name := s.shown()
	if name == "" {
		return
	}
	for _, objects := range s.stagings() {
		for _, object := range objects {
			if object == name {
				if len(objects) != 3 {
					s.Errorf("of what is published only %v are left", objects)
				}
				return
			}
		}
	}
	s.Errorf("the reference names %s, which is not there", name)
}

// only checks that nothing is staged but what the reference names.
func (s *site) only() {
	s.Helper()
	s.whole()
	want := 1
	if s.shown() == "" {
		want = 0
	}
	if left := s.stagings(); len(left) != want {
		s.Errorf("want %d stagings, got %v (published is %q)", want, left, s.shown())
	}
}

// roundTripper is a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// wire fails one write, the n-th, counted from 1.
type wire struct {
	n int
	// applied lets the write arrive and loses its answer; dead lets nothing else pass after it.
	applied, dead bool

	mu     sync.Mutex
	count  int
	broken bool
}

var errWire = errors.New("connection lost")

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		w.mu.Lock()
		counts := r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/selfsubjectreviews")
		if counts {
			w.count++
		}
		broken, now := w.broken, counts && w.count == w.n && !w.broken
		if now {
			w.broken = true
		}
		w.mu.Unlock()
		switch {
		case broken && w.dead:
			return nil, errWire
		case now && !broken:
			if w.applied {
				if response, err := next.RoundTrip(r); err == nil {
					_ = response.Body.Close()
				}
			}
			return nil, errWire
		default:
			return next.RoundTrip(r)
		}
	})
}

func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
