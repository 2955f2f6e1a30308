//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	api "github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
	"github.com/fencedlease/fencedlease/internal/probe"
	webhookv1alpha1 "github.com/fencedlease/fencedlease/internal/webhook/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

// patience bounds every wait. It is far above what any of them needs.
const patience = time.Minute

// suite is a control plane whose FencedLeases are validated by a webhook server of this process.
type suite struct {
	*env.Environment
	// admin may do everything.
	admin client.Client
	// managerNamespace is the namespace that the webhook takes for the manager's.
	managerNamespace string
	// reviews counts the calls of the webhook.
	reviews atomic.Int64
	// stop ends the webhook server, and returns when it has ended.
	stop func()
}

// countingServer counts the calls of the handlers that are registered with it.
type countingServer struct {
	webhook.Server
	calls *atomic.Int64
}

func (s countingServer) Register(path string, handler http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.calls.Add(1)
		handler.ServeHTTP(w, r)
	}))
}

// warnings collects what an API server warns a client about.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// take returns the warnings since the last call.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

func start(t *testing.T) *suite {
	t.Helper()
	g := NewWithT(t)
	// What the manager's libraries log of expected refusals says nothing here.
	log.SetLogger(logr.Discard())
	s := &suite{Environment: env.StartT(t, env.Options{})}
	g.Expect(s.InstallCRDs(t.Context())).To(Succeed())
	g.Expect(s.InstallGuardedCRD(t.Context())).To(Succeed())
	g.Expect(s.InstallGuardedCRD(t.Context(), func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Scope = apiextensionsv1.ClusterScoped
		crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "regions", Singular: "region", Kind: "Region", ListKind: "RegionList"}
	})).To(Succeed())
	config := s.Config()
	config.WarningHandler = rest.NoWarnings{}
	s.admin = s.clientOf(t, config)
	s.managerNamespace = s.CreateNamespace(t)

	port, err := s.Port()
	g.Expect(err).NotTo(HaveOccurred())
	certificate, key, ca, err := s.ServingCertificate()
	g.Expect(err).NotTo(HaveOccurred())
	pair, err := tls.X509KeyPair(certificate, key)
	g.Expect(err).NotTo(HaveOccurred())
	scheme, err := env.NewScheme()
	g.Expect(err).NotTo(HaveOccurred())
	mgr, err := ctrl.NewManager(s.managerConfig(t), ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		WebhookServer: countingServer{webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
		}}}), &s.reviews},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(webhookv1alpha1.SetupWithManager(mgr, webhookv1alpha1.Options{
		Namespace: s.managerNamespace,
		Kinds:     guardkind.NewLive(mgr.GetAPIReader()),
	})).To(Succeed())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("end of the manager: %v", err)
		}
	})
	t.Cleanup(s.stop)

	s.register(t, fmt.Sprintf("https://127.0.0.1:%d", port), ca)
	return s
}

// managerConfig returns the configuration of a service account with the rights of this package's and of guardkind's markers,
// and no others.
func (s *suite) managerConfig(t *testing.T) *rest.Config {
	t.Helper()
	g := NewWithT(t)
	config, err := s.ServiceAccount(t.Context(), s.managerNamespace, "manager")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.admin.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "webhook"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
			{APIGroups: []string{api.GroupName}, Resources: []string{"fencedleases"}, Verbs: []string{"list"}},
			{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: []string{"get", "list", "watch"}},
		},
	})).To(Succeed())
	g.Expect(s.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "webhook"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "webhook"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.managerNamespace, Name: "manager"}},
	})).To(Succeed())
	return config
}

// register installs the generated configuration with a URL in the place of its Service, and waits until it is in force.
func (s *suite) register(t *testing.T, url string, ca []byte) {
	t.Helper()
	g := NewWithT(t)
	manifest, err := os.ReadFile(filepath.Join(s.ModuleRoot(), "config", "webhook", "manifests.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	g.Expect(yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096).Decode(configuration)).To(Succeed())
	g.Expect(configuration.Webhooks).To(HaveLen(2))
	for i := range configuration.Webhooks {
		w := &configuration.Webhooks[i]
		w.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: ptr.To(url + *w.ClientConfig.Service.Path), CABundle: ca}
	}
	configuration.Name = webhookv1alpha1.ConfigurationName
	g.Expect(s.admin.Create(t.Context(), configuration)).To(Succeed())

	namespace := s.CreateNamespace(t)
	refused := env.NewLease(namespace, "refused", func(l *api.FencedLease) { l.Spec.Guards[0].APIGroups = []string{api.GroupName} })
	g.Eventually(func() error {
		return s.admin.Create(t.Context(), refused.DeepCopy(), client.DryRunAll)
	}).WithTimeout(patience).WithPolling(50*time.Millisecond).Should(MatchError(ContainSubstring(
		`admission webhook "policy.fencedleases.coordination.fencedlease.io" denied the request`)), "the registration is not in force")
}

func (s *suite) clientOf(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := env.Client(config)
	if err != nil {
		t.Fatalf("make client: %v", err)
	}
	return c
}

// recording returns an administrator's client and the warnings that it is given.
func (s *suite) recording(t *testing.T) (client.Client, *warnings) {
	t.Helper()
	w := &warnings{}
	config := s.Config()
	config.WarningHandler = w
	return s.clientOf(t, config), w
}

// user returns the client of a user who may write FencedLeases in a namespace, and has further verbs on them. It returns when
// the API server's authorizer knows of it.
func (s *suite) user(t *testing.T, name, namespace string, verbs ...string) client.Client {
	t.Helper()
	g := NewWithT(t)
	config, err := s.AddUser(name)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.admin.Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{api.GroupName}, Resources: []string{"fencedleases"},
			Verbs: append([]string{"get", "create", "update", "patch", "delete"}, verbs...),
		}},
	})).To(Succeed())
	g.Expect(s.admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	})).To(Succeed())
	c := s.clientOf(t, config)
	g.Eventually(func() error {
		return c.Create(t.Context(), env.NewLease(namespace, "access"), client.DryRunAll)
	}).WithTimeout(patience).WithPolling(50 * time.Millisecond).Should(Succeed())
	return c
}

// guarding makes a lease guard what the guards say.
func guarding(guards ...api.Guard) func(*api.FencedLease) {
	return func(l *api.FencedLease) { l.Spec.Guards = guards }
}

// everywhere makes the guards of a lease reach all namespaces.
func everywhere(l *api.FencedLease) {
	for i := range l.Spec.Guards {
		l.Spec.Guards[i].NamespaceSelector = &metav1.LabelSelector{}
	}
}

func guard(group string, resources ...string) api.Guard {
	return api.Guard{APIGroups: []string{group}, Resources: resources}
}

// expectRefusal checks that a write was refused as invalid, with these texts.
func expectRefusal(t *testing.T, err error, texts ...string) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Fatalf("want a refusal as invalid, got %v", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("want a refusal with %q, got %v", text, err)
		}
	}
}

func expectNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("want no error, got %v", err)
	}
}

func expectWarnings(t *testing.T, w *warnings, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, w.take(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestOnTheAPIServer goes through the real path: client, API server, webhook server, and its questions to the API server.
func TestOnTheAPIServer(t *testing.T) {
	s := start(t)
	t.Run("permission", s.testPermission)
	t.Run("kinds", s.testKinds)
	t.Run("overlaps", s.testOverlaps)
	t.Run("namespaces", s.testNamespaces)
	t.Run("deletion", s.testDeletion)
	t.Run("status", s.testStatus)
	t.Run("probes", s.testProbes)
	// The last, as it stops the webhook.
	t.Run("webhook down", s.testWebhookDown)
}

func (s *suite) testPermission(t *testing.T) {
	namespace := s.CreateNamespace(t)
	without := s.user(t, "without-verb", namespace)
	with := s.user(t, "with-verb", namespace, api.VerbGuardCluster)
	lease := env.NewLease(namespace, "permission", everywhere)
	denial := []string{"spec.guards[0].namespaceSelector: Forbidden", "needs the verb guard-cluster", `user "without-verb"`, "have an administrator grant the verb"}

	expectRefusal(t, without.Create(t.Context(), lease.DeepCopy()), denial...)
	expectRefusal(t, without.Create(t.Context(), lease.DeepCopy(), client.DryRunAll), denial...)
	applied := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": api.SchemeGroupVersion.String(), "kind": "FencedLease",
		"metadata": map[string]any{"namespace": namespace, "name": "permission"},
		"spec": map[string]any{"leaseDurationSeconds": int64(15), "guards": []any{map[string]any{
			"apiGroups": []any{"example.com"}, "resources": []any{"reports/*"}, "namespaceSelector": map[string]any{},
		}}},
	}}
	apply := func(c client.Client, owner string) error {
		return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied.DeepCopy()), client.FieldOwner(owner))
	}
	expectRefusal(t, apply(without, "without"), denial...)
	expectNoError(t, apply(with, "with"))

	// Who does not have the verb may write everything but the wide guard.
	expectNoError(t, apply(without, "without"))
	patch := func(c client.Client, text string) error {
		return c.Patch(t.Context(), lease.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	expectNoError(t, patch(without, `{"metadata":{"labels":{"a":"b"}},"spec":{"leaseDurationSeconds":30}}`))
	const widened = `{"spec":{"guards":[{"apiGroups":["example.com"],"resources":["reports/*","regions/*"],"namespaceSelector":{}}]}}`
	expectRefusal(t, patch(without, widened), denial...)
	expectNoError(t, patch(with, widened))
	expectNoError(t, patch(without, `{"spec":{"enforcement":"Audit"}}`))
	expectRefusal(t, patch(without, `{"spec":{"enforcement":"Enforce"}}`), denial...)
	expectNoError(t, patch(without, `{"spec":{"guards":[{"apiGroups":["example.com"],"resources":["reports/*"]}],"enforcement":"Enforce"}}`))
	expectNoError(t, s.admin.Delete(t.Context(), lease.DeepCopy()))
}

func (s *suite) testKinds(t *testing.T) {
	c, w := s.recording(t)
	namespace := s.CreateNamespace(t)
	create := func(name string, guards ...api.Guard) error {
		return c.Create(t.Context(), env.NewLease(namespace, name, guarding(guards...)))
	}
	expectNoError(t, create("whole", guard("example.com", "reports/*")))
	expectWarnings(t, w)
	expectNoError(t, create("open", guard("example.com", "reports")))
	expectWarnings(t, w,
		"spec.guards[0].resources: reports/scale of example.com is left open, stale writes to it are admitted: add reports/scale, or reports/* for all",
		"spec.guards[0].resources: reports/status of example.com is left open, stale writes to it are admitted: add reports/status, or reports/* for all")
	expectNoError(t, create("early", guard("example.com", "plans")))
	expectWarnings(t, w, "spec.guards[0]: plans.example.com is not installed: guarded from the moment the CustomResourceDefinition is there; check the spelling if it should be")
	expectRefusal(t, create("cluster-scoped", guard("example.com", "regions/*")),
		"spec.guards[0].namespaceSelector: Required value: regions.example.com is cluster-scoped", "set `namespaceSelector: {}`")
	expectRefusal(t, create("built-in", guard("networking.k8s.io", "ingresses"), guard("apiextensions.k8s.io", "customresourcedefinitions")),
		"spec.guards[0].apiGroups[0]: Invalid value", "ingresses.networking.k8s.io is built into Kubernetes",
		"spec.guards[1].apiGroups[0]: Invalid value", "customresourcedefinitions.apiextensions.k8s.io is built into Kubernetes")
	expectRefusal(t, create("own", guard(api.GroupName, "fencedleases")), "FencedLeases cannot be guarded")
	expectRefusal(t, create("seal", api.Guard{
		APIGroups: []string{"example.com"}, Resources: []string{"reports/*"},
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "not a value"}},
	}), "spec.guards[0].objectSelector.matchLabels: Invalid value")
	// The name that the API server generates is there when the webhook is asked.
	generated := env.NewLease(namespace, "", guarding(guard(api.GroupName, "fencedleases")))
	generated.GenerateName = "generated-"
	expectRefusal(t, c.Create(t.Context(), generated), `FencedLease.coordination.fencedlease.io "generated-`)
	generated = env.NewLease(namespace, "", guarding(guard("example.com", "reports/*")))
	generated.GenerateName = "generated-"
	expectNoError(t, c.Create(t.Context(), generated))
}

func (s *suite) testOverlaps(t *testing.T) {
	here, there := s.CreateNamespace(t), s.CreateNamespace(t)
	expectNoError(t, s.admin.Create(t.Context(), env.NewLease(here, "overlaps")))
	expectNoError(t, s.admin.Create(t.Context(), env.NewLease(there, "overlaps")))
	expectNoError(t, s.admin.Delete(t.Context(), env.NewLease(there, "overlaps")))
	// No wait between the two: the list is not from a cache.
	text := fmt.Sprintf("overlaps spec.guards[0] of the FencedLease %q in the namespace %q: both may guard the same reports.example.com", "overlaps", here)
	expectRefusal(t, s.admin.Create(t.Context(), env.NewLease(there, "overlaps", everywhere)), "spec.guards[0]: Forbidden", text)
	expectNoError(t, s.admin.Create(t.Context(), env.NewLease(there, "another-name", everywhere)))
	expectNoError(t, s.admin.Create(t.Context(), env.NewLease(there, "overlaps", func(l *api.FencedLease) {
		l.Spec.Guards[0].NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{here}},
		}}
	})))
	expectNoError(t, s.admin.DeleteAllOf(t.Context(), &api.FencedLease{}, client.InNamespace(there)))
}

func (s *suite) testNamespaces(t *testing.T) {
	for _, namespace := range []string{metav1.NamespaceSystem, s.managerNamespace} {
		expectRefusal(t, s.admin.Create(t.Context(), env.NewLease(namespace, "namespaces")),
			"spec.guards[0]: Forbidden: objects in the namespace", "must be able to write there while the webhook is down")
		expectNoError(t, s.admin.Create(t.Context(), env.NewLease(namespace, "namespaces", guarding())))
		expectNoError(t, s.admin.Delete(t.Context(), env.NewLease(namespace, "namespaces")))
	}
}

func (s *suite) testDeletion(t *testing.T) {
	c, w := s.recording(t)
	namespace := s.CreateNamespace(t)
	held := env.NewLease(namespace, "held")
	expectNoError(t, env.CreateLease(t.Context(), c, held))
	expectNoError(t, env.Acquire(t.Context(), c, held, "pod-a"))
	expectWarnings(t, w)
	text := fmt.Sprintf(`FencedLease %s/held is held by "pod-a" under generation %d: its deletion ends that term and the protection of reports.example.com, stale writers are no longer refused; stop its writers first`,
		namespace, *held.Status.Generation)
	expectNoError(t, c.Delete(t.Context(), held, client.DryRunAll))
	expectWarnings(t, w, text)
	expectNoError(t, c.Delete(t.Context(), held))
	expectWarnings(t, w, text)

	expectNoError(t, c.Create(t.Context(), env.NewLease(namespace, "guards")))
	expectNoError(t, c.Create(t.Context(), env.NewLease(namespace, "nothing", guarding())))
	expectNoError(t, c.DeleteAllOf(t.Context(), &api.FencedLease{}, client.InNamespace(namespace)))
	expectWarnings(t, w, fmt.Sprintf("FencedLease %s/guards is not held, but its deletion ends the protection of reports.example.com, stale writers are no longer refused", namespace))
}

func (s *suite) testStatus(t *testing.T) {
	namespace := s.CreateNamespace(t)
	lease := env.NewLease(namespace, "status")
	before := s.reviews.Load()
	expectNoError(t, s.admin.Create(t.Context(), lease))
	if got := s.reviews.Load() - before; got != 1 {
		t.Fatalf("want one call for the create, got %d: the counter proves nothing", got)
	}
	before = s.reviews.Load()
	s.possess(t, lease)
	if got := s.reviews.Load() - before; got != 0 {
		t.Errorf("want no call for status writes, got %d", got)
	}
}

// possess goes through a lease's possession: floor, acquisition, renewal, release, acquisition.
func (s *suite) possess(t *testing.T, lease *api.FencedLease) {
	t.Helper()
	expectNoError(t, env.SetFloor(t.Context(), s.admin, lease, -1))
	expectNoError(t, env.Acquire(t.Context(), s.admin, lease, "pod-a"))
	expectNoError(t, env.Renew(t.Context(), s.admin, lease))
	expectNoError(t, env.Release(t.Context(), s.admin, lease))
	expectNoError(t, env.Acquire(t.Context(), s.admin, lease, "pod-b"))
}

func (s *suite) testProbes(t *testing.T) {
	c, w := s.recording(t)
	for _, kind := range probe.Kinds() {
		object := env.NewLease(s.managerNamespace, probe.Name(kind, "0123456789abcdef"), guarding())
		expectNoError(t, c.Create(t.Context(), object, client.DryRunAll))
	}
	expectWarnings(t, w)
}

func (s *suite) testWebhookDown(t *testing.T) {
	namespace := s.CreateNamespace(t)
	lease := env.NewLease(namespace, "down")
	expectNoError(t, s.admin.Create(t.Context(), lease))
	s.stop()

	if err := s.admin.Create(t.Context(), env.NewLease(namespace, "late")); !apierrors.IsInternalError(err) {
		t.Errorf("create: want an internal error, got %v", err)
	}
	if err := s.admin.Patch(t.Context(), lease.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))); !apierrors.IsInternalError(err) {
		t.Errorf("update: want an internal error, got %v", err)
	}
	s.possess(t, lease)
	expectNoError(t, s.admin.Delete(t.Context(), lease))
}
