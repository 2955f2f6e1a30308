// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fenced_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
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
	// objects counts the names that tests have made.
	objects atomic.Int64
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
	if admin, err = clientFor(cluster.Config()); err != nil {
		return fail(errors.Join(err, manager.Stop()))
	}
	return func() error { return errors.Join(manager.Stop(), cluster.Stop()) }, nil
}

// Report is the guarded kind as a Go type.
type Report struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ReportSpec   `json:"spec,omitzero"`
	Status ReportStatus `json:"status,omitzero"`
}

// ReportSpec is what a Report is to say.
type ReportSpec struct {
	Value    string `json:"value,omitempty"`
	Replicas int32  `json:"replicas,omitempty"`
}

// ReportStatus is what became of it.
type ReportStatus struct {
	Phase string `json:"phase,omitempty"`
}

// DeepCopyObject copies a Report.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// ReportList is a list of Reports.
type ReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Report `json:"items"`
}

// DeepCopyObject copies a list.
func (r *ReportList) DeepCopyObject() runtime.Object {
	out := *r
	out.Items = append([]Report{}, r.Items...)
	return &out
}

func newScheme() (*runtime.Scheme, error) {
	scheme, err := env.NewScheme()
	if err != nil {
		return nil, err
	}
	version := schema.GroupVersion{Group: env.GuardedGroup, Version: env.ReportVersion}
	scheme.AddKnownTypes(version, &Report{}, &ReportList{})
	metav1.AddToGroupVersion(scheme, version)
	return scheme, nil
}

func clientFor(config *rest.Config) (client.Client, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

func newClient(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	c, err := clientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// restClient returns a client of client-go for Reports.
func restClient(t testing.TB, config *rest.Config) rest.Interface {
	t.Helper()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &schema.GroupVersion{Group: env.GuardedGroup, Version: env.ReportVersion}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// story is a lease in a namespace of its own, and the terms of its holders.
type story struct {
	namespace string
	lease     *v1alpha1.FencedLease
}

// begin creates a lease whose guards are in force.
func begin(t testing.TB, mutations ...func(*v1alpha1.FencedLease)) *story {
	t.Helper()
	namespace := cluster.CreateNamespace(t)
	return &story{namespace: namespace, lease: newLease(t, namespace, "report-writer", mutations...)}
}

func newLease(t testing.TB, namespace, name string, mutations ...func(*v1alpha1.FencedLease)) *v1alpha1.FencedLease {
	t.Helper()
	lease := env.NewLease(namespace, name, mutations...)
	if err := product.CreateLease(t.Context(), admin, lease); err != nil {
		t.Fatal(err)
	}
	return lease
}

func (s *story) key() string { return v1alpha1.TokenKey(s.lease.Name) }

// take lets a holder take the lease and returns its term. What came of earlier terms is known to the API server only.
func (s *story) take(t testing.TB, holder string) *term {
	t.Helper()
	eventually(t, "take the lease", func(ctx context.Context) error { return env.Acquire(ctx, admin, s.lease, holder) })
	parsed, err := token.Parse(env.Token(s.lease, ""))
	if err != nil {
		t.Fatal(err)
	}
	return &term{lease: client.ObjectKeyFromObject(s.lease), token: parsed, guards: s.lease.Spec.Guards}
}

// create creates an object under a term and returns its name.
func (s *story) create(t testing.TB, p fenced.Possession, mutations ...func(*unstructured.Unstructured)) string {
	t.Helper()
	report := env.NewReport(s.namespace, newName(), "first")
	report.SetAnnotations(map[string]string{s.key(): p.Token().String() + "/created"})
	for _, mutate := range mutations {
		mutate(report)
	}
	if err := admin.Create(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	return report.GetName()
}

// get reads an object from the API server.
func (s *story) get(t testing.TB, name string) *unstructured.Unstructured {
	t.Helper()
	o := s.object(name)
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func (s *story) gone(t testing.TB, name string) bool {
	t.Helper()
	o := s.object(name)
	err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err != nil
}

func (s *story) object(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(env.ReportKind(env.ReportVersion))
	o.SetNamespace(s.namespace)
	o.SetName(name)
	return o
}

func newName() string { return "report-" + strconv.FormatInt(objects.Add(1), 10) }

// worker returns the configuration of a service account that may write Reports, with further rules, in force.
func (s *story) worker(t testing.TB, rules fenced.Rules) *rest.Config {
	t.Helper()
	name := "worker-" + strconv.FormatInt(objects.Add(1), 10)
	config, err := cluster.ServiceAccount(t.Context(), s.namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		for i := range rules {
			if len(rules[i].ResourceNames) > 0 {
				rules[i].ResourceNames = []string{name}
			}
		}
		return rules
	}
	grant(t, s.namespace, name, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: name}, fenced.Rules{
		Role: append(replace(rules.Role), rbacv1.PolicyRule{
			APIGroups: []string{env.GuardedGroup}, Resources: []string{"reports", "reports/status", "reports/scale"},
			Verbs: []string{"get", "list", "create", "update", "patch", "delete", "deletecollection"},
		}),
		ClusterRole: rules.ClusterRole,
	})
	// The API server sees roles a moment late, the last one last.
	c := newClient(t, config)
	eventually(t, "see the role", func(ctx context.Context) error {
		return c.List(ctx, &ReportList{}, client.InNamespace(s.namespace))
	})
	return config
}

// grant binds rules to somebody.
func grant(t testing.TB, namespace, name string, to rbacv1.Subject, rules fenced.Rules) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: namespace + "-" + name}
	create := func(objects ...client.Object) {
		t.Helper()
		for _, o := range objects {
			if err := admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	create(&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules.ClusterRole}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{to}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
	})
	if len(rules.Role) > 0 {
		meta.Namespace = namespace
		create(&rbacv1.Role{ObjectMeta: meta, Rules: rules.Role}, &rbacv1.RoleBinding{
			ObjectMeta: meta, Subjects: []rbacv1.Subject{to}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		})
	}
}

// eventually repeats what may need a moment.
func eventually(t testing.TB, what string, attempt func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = attempt(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}

// counting returns a copy of a configuration that counts the writes that leave.
func counting(config *rest.Config, writes *atomic.Int64) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transportFunc(func(req *http.Request) (*http.Response, error) {
			if req.Method != http.MethodGet {
				writes.Add(1)
			}
			return next.RoundTrip(req)
		})
	})
	return config
}

// wantFenced fails the test unless an error is a refusal for one of the causes by the fence of a lease.
func (s *story) wantFenced(t testing.TB, err error, causes ...fenced.CauseType) {
	t.Helper()
	refusal, ok := fenced.Cause(err)
	if !ok || !fenced.IsFenced(err) {
		t.Errorf("want a refusal by the fence, got %v", err)
		return
	}
	for _, cause := range causes {
		if refusal.Type == cause {
			if refusal.Lease.Name != s.lease.Name || refusal.Lease.Namespace != "" && refusal.Lease.Namespace != s.namespace || refusal.Message == "" {
				t.Errorf("the refusal is %+v", refusal)
			}
			return
		}
	}
	t.Errorf("want one of the causes %v, got %s: %v", causes, refusal.Type, err)
}
