//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// timeout bounds waits; none of them takes nearly as long.
const timeout = time.Minute

// cluster is an API server of the test's own.
type cluster struct {
	client     client.Client
	config     *rest.Config
	kubectl    string
	kubeconfig string
}

func start(t *testing.T) *cluster {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Fatal("KUBEBUILDER_ASSETS is not set: set it to the folder that hack/controlplane/build.sh prints")
	}
	env := &envtest.Environment{}
	config, err := env.Start()
	if err != nil {
		t.Fatalf("start API server: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop API server: %v", err)
		}
	})
	all := runtime.NewScheme()
	if err := scheme.AddToScheme(all); err != nil {
		t.Fatalf("build scheme: %v", err)
	}
	if err := v1alpha1.AddToScheme(all); err != nil {
		t.Fatalf("build scheme: %v", err)
	}
	c := &cluster{config: config, kubectl: filepath.Join(assets, "kubectl"), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if c.client, err = client.New(config, client.Options{Scheme: all}); err != nil {
		t.Fatalf("build client: %v", err)
	}
	if err := os.WriteFile(c.kubeconfig, env.KubeConfig, 0o600); err != nil {
		t.Fatalf("write kubeconfig: %v", err)
	}
	return c
}

// run runs kubectl, which must succeed.
func (c *cluster) run(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, c.kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// build builds a kustomization.
func build(t *testing.T, folder string) []byte {
	t.Helper()
	kubectl := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	cmd := exec.CommandContext(t.Context(), kubectl, "kustomize", filepath.Join(root, folder))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("build %s: %v\n%s", folder, err, stderr.String())
	}
	return out
}

// TestImageIsWhatIMGSays: make deploy and make build-installer install the image that they are given.
func TestImageIsWhatIMGSays(t *testing.T) {
	const image = "registry.example.com:5000/fence/manager:v9"
	for _, folder := range []string{"config/default", "config/certmanager"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "hack/make/kustomize.sh"), folder)
		cmd.Env = append(os.Environ(), "IMG="+image, "KUBECTL="+filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"))
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("build %s: %v", folder, err)
		}
		if got := strings.Count(string(out), "image: "); got != 1 || !strings.Contains(string(out), "image: "+image+"\n") {
			t.Errorf("%s: want the image %s once, there are %d images", folder, image, got)
		}
	}
}

// TestKustomizationsBuild also keeps dist/install.yaml what config/default says.
func TestKustomizationsBuild(t *testing.T) {
	want, err := os.ReadFile(installer)
	if err != nil {
		t.Fatalf("read the installer: %v", err)
	}
	if diff := cmp.Diff(string(want), string(build(t, "config/default"))); diff != "" {
		t.Errorf("run make build-installer: config/default differs from dist/install.yaml (-installer +built):\n%s", diff)
	}
	folders, err := filepath.Glob(filepath.Join(root, "config/*/kustomization.yaml"))
	if err != nil {
		t.Fatalf("find kustomizations: %v", err)
	}
	for _, file := range folders {
		folder := "config/" + filepath.Base(filepath.Dir(file))
		if len(decode(t, build(t, folder))) == 0 {
			t.Errorf("%s: builds nothing", folder)
		}
	}
}

// TestInstallation takes one API server through the life of an installation.
func TestInstallation(t *testing.T) {
	c := start(t)
	t.Run("samples are accepted where nothing but the CRD is installed", c.testSamples)
	t.Run("a second server-side apply changes nothing", func(t *testing.T) { testReapply(t, c, "apply", "--server-side") })
	t.Run("the pod fits the restricted level", c.testPodSecurity)
	t.Run("the manager has the rights that it needs and no others", c.testRights)
	t.Run("applying again keeps what the manager wrote", c.testReapplyKeepsTrust)
	t.Run("requests of the manager and of leaders have priority levels of their own", c.testPriorityLevels)
	t.Run("deleting it leaves nothing", c.testDelete)
}

func (c *cluster) testSamples(t *testing.T) {
	c.run(t.Context(), t, "apply", "--server-side", "-k", filepath.Join(root, "config/crd"))
	c.run(t.Context(), t, "wait", "--for=condition=Established", "--timeout=60s", "crd/fencedleases.coordination.fencedlease.io")
	samples := decode(t, build(t, "config/samples"))

	leases := 0
	for _, o := range samples {
		if o.GetKind() == "FencedLease" {
			leases++
		}
	}
	files, err := filepath.Glob(filepath.Join(root, "config/samples/fencedlease*.yaml"))
	if err != nil || leases != len(files) {
		t.Errorf("FencedLeases in the kustomization: want one for each of %v, got %d (%v)", files, leases, err)
	}

	for range 2 {
		c.run(t.Context(), t, "apply", "--validate=strict", "-k", filepath.Join(root, "config/samples"))
	}
	for _, o := range samples {
		if o.GetKind() != "FencedLease" {
			continue
		}
		// The reader's client drops no field that the sample sets.
		var lease v1alpha1.FencedLease
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(&o), &lease); err != nil {
			t.Errorf("read FencedLease %s: %v", o.GetName(), err)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &v1alpha1.FencedLease{}, true); err != nil {
			t.Errorf("convert FencedLease %s: %v", o.GetName(), err)
		}
	}
	c.run(t.Context(), t, "delete", "-k", filepath.Join(root, "config/samples"), "--wait=false")
}

// testReapply applies the installer twice. Controllers of the API server write some of the objects (conditions of flow
// control and of the CRD) a moment after they are created, so the second apply is repeated until they are done; an apply
// that changes something would go on doing so.
func testReapply(t *testing.T, c *cluster, args ...string) {
	t.Helper()
	args = append(args, "-f", installer)
	c.run(t.Context(), t, args...)
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, timeout, true, func(ctx context.Context) (bool, error) {
		before := versions(ctx, t, c)
		c.run(ctx, t, args...)
		last = cmp.Diff(before, versions(ctx, t, c))
		return last == "", nil
	})
	if err != nil {
		t.Errorf("applying again changes objects (-before +after):\n%s", last)
	}
}

// versions returns the resourceVersion of each installed object.
func versions(ctx context.Context, t *testing.T, c *cluster) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, o := range install(t) {
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(&o), &o); err != nil {
			t.Fatalf("read %s %s: %v", o.GetKind(), o.GetName(), err)
		}
		out[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
	}
	return out
}

// testPodSecurity creates the Deployment's pod in a namespace with the labels of ours, but without its quota: nothing
// computes that here.
func (c *cluster) testPodSecurity(t *testing.T) {
	ctx := t.Context()
	var ours corev1.Namespace
	if err := c.client.Get(ctx, client.ObjectKey{Name: namespace}, &ours); err != nil {
		t.Fatalf("read namespace: %v", err)
	}
	probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "pod-security", Labels: ours.Labels}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: serviceAccount, Namespace: probe.Name}}
	var d appsv1.Deployment
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "fencedlease-controller-manager"}, &d); err != nil {
		t.Fatalf("read Deployment: %v", err)
	}
	for _, o := range []client.Object{probe, account} {
		if err := c.client.Create(ctx, o); err != nil {
			t.Fatalf("create %T: %v", o, err)
		}
	}
	pod := func() *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "manager-", Namespace: probe.Name, Labels: d.Spec.Template.Labels}, Spec: *d.Spec.Template.Spec.DeepCopy()}
	}
	if err := c.client.Create(ctx, pod(), client.DryRunAll); err != nil {
		t.Errorf("create the manager's pod: %v", err)
	}
	weak := pod()
	weak.Spec.Containers[0].SecurityContext = nil
	if err := c.client.Create(ctx, weak, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("create a weaker pod, which shows that the level is in force: want Forbidden, got %v", err)
	}
}

// access is a request, in the words of RBAC.
type access struct {
	verb, group, resource, namespace, name string
}

func (a access) String() string {
	return fmt.Sprintf("%s %s.%s %s/%s", a.verb, a.resource, a.group, a.namespace, a.name)
}

func (c *cluster) testRights(t *testing.T) {
	const (
		ours      = "coordination.fencedlease.io"
		admission = "admissionregistration.k8s.io"
	)
	var allowed, refused []access
	for resource, names := range map[string][]string{
		"validatingwebhookconfigurations":   {"fencedlease-guards", "fencedlease-validation"},
		"mutatingwebhookconfigurations":     {"fencedlease-guards"},
		"validatingadmissionpolicies":       {"fencedlease-definitions", "fencedlease-marks", "fencedlease-registration"},
		"validatingadmissionpolicybindings": {"fencedlease-definitions", "fencedlease-marks", "fencedlease-registration"},
		"mutatingadmissionpolicies":         {"fencedlease-stamps"},
		"mutatingadmissionpolicybindings":   {"fencedlease-stamps"},
	} {
		for _, name := range names {
			for _, verb := range []string{"get", "patch"} {
				allowed = append(allowed, access{verb, admission, resource, "", name})
			}
			// The static configuration is installed, not created by the manager.
			if name != "fencedlease-validation" {
				allowed = append(allowed, access{"create", admission, resource, "", name})
			}
		}
		for _, verb := range []string{"create", "patch", "update", "delete", "deletecollection"} {
			refused = append(refused, access{verb, admission, resource, "", ""}, access{verb, admission, resource, "", "other"})
		}
		refused = append(refused, access{"delete", admission, resource, "", names[0]})
	}
	allowed = append(allowed,
		access{"get", ours, "fencedleases", "any", "any"},
		access{"list", ours, "fencedleases", "", ""},
		access{"watch", ours, "fencedleases", "", ""},
		access{"patch", ours, "fencedleases/status", "any", "any"},
		access{"create", ours, "fencedleases", namespace, "any"},
		access{"get", "apiextensions.k8s.io", "customresourcedefinitions", "", "any"},
		access{"list", "apiextensions.k8s.io", "customresourcedefinitions", "", ""},
		access{"watch", "apiextensions.k8s.io", "customresourcedefinitions", "", ""},
		access{"list", "apiregistration.k8s.io", "apiservices", "", ""},
		access{"get", "", "namespaces", "any", "any"},
		access{"list", "", "namespaces", "", ""},
		access{"watch", "", "namespaces", "", ""},
		access{"create", "events.k8s.io", "events", "any", ""},
		access{"patch", "events.k8s.io", "events", "any", "any"},
		access{"create", "authorization.k8s.io", "subjectaccessreviews", "", ""},
		access{"create", "authentication.k8s.io", "tokenreviews", "", ""},
		access{"create", "", "secrets", namespace, ""},
		access{"get", "", "secrets", namespace, "fencedlease-webhook-cert"},
		access{"update", "", "secrets", namespace, "fencedlease-webhook-cert"},
		access{"watch", "", "secrets", namespace, "fencedlease-webhook-cert"},
		access{"create", "coordination.k8s.io", "leases", namespace, ""},
		access{"update", "coordination.k8s.io", "leases", namespace, "fencedlease-manager.fencedlease.io"},
		access{"list", "discovery.k8s.io", "endpointslices", "default", ""},
		access{"watch", "discovery.k8s.io", "endpointslices", "default", ""},
	)
	refused = append(refused,
		access{"create", ours, "fencedleases", "any", ""},
		access{"update", ours, "fencedleases", "any", "any"},
		access{"delete", ours, "fencedleases", "any", "any"},
		access{"guard-cluster", ours, "fencedleases", "any", "any"},
		access{"bypass", ours, "fencedleases", "any", "any"},
		access{"get", "example.com", "reports", "any", "any"},
		access{"get", "", "secrets", "any", "fencedlease-webhook-cert"},
		access{"get", "", "secrets", namespace, "other"},
		access{"list", "", "secrets", namespace, ""},
		access{"list", "discovery.k8s.io", "endpointslices", "any", ""},
		access{"update", "coordination.k8s.io", "leases", namespace, "other"},
		access{"update", "apiextensions.k8s.io", "customresourcedefinitions", "", "any"},
		access{"get", "", "pods", "any", "any"},
		access{"impersonate", "", "users", "", "any"},
		access{"escalate", "rbac.authorization.k8s.io", "clusterroles", "", "any"},
	)

	// The authorizer learns of new roles by a watch.
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		return may(ctx, t, c, allowed[len(allowed)-1]), nil
	})
	if err != nil {
		t.Fatalf("wait for the roles: %v", err)
	}
	for _, a := range allowed {
		if !may(t.Context(), t, c, a) {
			t.Errorf("must be allowed: %s", a)
		}
	}
	for _, a := range refused {
		if may(t.Context(), t, c, a) {
			t.Errorf("must be refused: %s", a)
		}
	}
}

// may asks the API server whether the manager's service account may make a request.
func may(ctx context.Context, t *testing.T, c *cluster, a access) bool {
	t.Helper()
	resource, subresource, _ := strings.Cut(a.resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + namespace + ":" + serviceAccount,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: a.verb, Group: a.group, Version: "*", Resource: resource, Subresource: subresource, Namespace: a.namespace, Name: a.name,
		},
	}}
	if err := c.client.Create(ctx, review); err != nil {
		t.Fatalf("ask for %s: %v", a, err)
	}
	return review.Status.Allowed
}

// testReapplyKeepsTrust is report F-12: a bundle that the manager applied survives every way of applying the manifest again.
func (c *cluster) testReapplyKeepsTrust(t *testing.T) {
	const owner = client.FieldOwner("fencedlease-manager")
	ctx := t.Context()
	// The API server's own: it must be a certificate.
	bundle := base64.StdEncoding.EncodeToString(c.config.CAData)
	key := client.ObjectKey{Name: "fencedlease-validation"}
	configuration := func() *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("admissionregistration.k8s.io/v1")
		o.SetKind("ValidatingWebhookConfiguration")
		o.SetName(key.Name)
		return o
	}
	read := func() (bundles []string, managers []string) {
		o := configuration()
		if err := c.client.Get(ctx, key, o); err != nil {
			t.Fatalf("read webhook configuration: %v", err)
		}
		hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		if err != nil {
			t.Fatalf("read webhooks: %v", err)
		}
		for _, hook := range hooks {
			b, _, err := unstructured.NestedString(hook.(map[string]any), "clientConfig", "caBundle")
			if err != nil {
				t.Fatalf("read bundle: %v", err)
			}
			bundles = append(bundles, b)
		}
		for _, entry := range o.GetManagedFields() {
			managers = append(managers, entry.Manager+" "+string(entry.Operation))
		}
		slices.Sort(managers)
		return bundles, managers
	}

	apply := configuration()
	var hooks []any
	for _, o := range install(t) {
		if o.GetName() != key.Name {
			continue
		}
		installed, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		if err != nil {
			t.Fatalf("read webhooks: %v", err)
		}
		for _, hook := range installed {
			hooks = append(hooks, map[string]any{"name": hook.(map[string]any)["name"], "clientConfig": map[string]any{"caBundle": bundle}})
		}
	}
	apply.Object["webhooks"] = hooks
	if err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(apply), owner); err != nil {
		t.Fatalf("apply the bundle as the manager: %v", err)
	}
	want, managers := read()
	if len(want) == 0 || slices.ContainsFunc(want, func(b string) bool { return b != bundle }) {
		t.Fatalf("bundles: want the manager's in each webhook, got %v", want)
	}

	for round := range 5 {
		c.run(t.Context(), t, "apply", "--server-side", "-f", installer)
		got, now := read()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("round %d: a server-side apply changed the bundles (-want +got):\n%s", round, diff)
		}
		if diff := cmp.Diff(managers, now); diff != "" {
			t.Fatalf("round %d: field managers are not stable (-want +got):\n%s", round, diff)
		}
	}
	// Somebody else goes on with client-side applies.
	c.run(t.Context(), t, "apply", "-f", installer)
	testReapply(t, c, "apply")
	if got, _ := read(); !cmp.Equal(want, got) {
		t.Errorf("a client-side apply changed the bundles: want %v, got %v", want, got)
	}
	testReapply(t, c, "apply", "--server-side")
	if got, _ := read(); !cmp.Equal(want, got) {
		t.Errorf("a server-side apply after client-side ones changed the bundles: want %v, got %v", want, got)
	}
}

// testPriorityLevels asks the API server by which level it handles a request: it says so in a header, by uid.
func (c *cluster) testPriorityLevels(t *testing.T) {
	level := func(name string) string {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("flowcontrol.apiserver.k8s.io/v1")
		o.SetKind("PriorityLevelConfiguration")
		if err := c.client.Get(t.Context(), client.ObjectKey{Name: name}, o); err != nil {
			t.Fatalf("read priority level: %v", err)
		}
		return string(o.GetUID())
	}
	for name, test := range map[string]struct{ user, path, want string }{
		"the manager reads a lease":  {namespace + ":" + serviceAccount, "/namespaces/any/fencedleases/any", "fencedlease-reads"},
		"the manager lists leases":   {namespace + ":" + serviceAccount, "/fencedleases?limit=1", "fencedlease-reads"},
		"a leader reads a lease":     {"any:leader", "/namespaces/any/fencedleases/any", "fencedlease-leaders"},
		"somebody lists all leases":  {"any:leader", "/fencedleases?limit=1", "workload-low"},
		"the manager reads a secret": {namespace + ":" + serviceAccount, "", "fencedlease-seals"},
		"somebody reads a secret":    {"any:leader", "", "workload-low"},
	} {
		path := "/apis/coordination.fencedlease.io/v1alpha1" + test.path
		if test.path == "" {
			path = "/api/v1/namespaces/" + namespace + "/secrets/fencedlease-webhook-cert"
		}
		group := "system:serviceaccounts:" + strings.Split(test.user, ":")[0]
		var got string
		err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
			got = levelOf(ctx, t, c, rest.ImpersonationConfig{UserName: "system:serviceaccount:" + test.user, Groups: []string{"system:serviceaccounts", group, "system:authenticated"}}, path)
			return got == level(test.want), nil
		})
		if err != nil {
			t.Errorf("%s: want level %s (%s), got %s", name, test.want, level(test.want), got)
		}
	}
}

// levelOf makes a request as somebody else and returns the uid of the priority level that handled it. Whether the request
// succeeds does not matter: the level is chosen before.
func levelOf(ctx context.Context, t *testing.T, c *cluster, as rest.ImpersonationConfig, path string) string {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.Impersonate = as
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatalf("build client: %v", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatalf("build request: %v", err)
	}
	response, err := httpClient.Do(request)
	if err != nil {
		t.Fatalf("get %s: %v", path, err)
	}
	if err := response.Body.Close(); err != nil {
		t.Fatalf("close body: %v", err)
	}
	return response.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)
}

// testDelete deletes by the manifest that was applied. Namespaces stay terminating, as there is no controller manager.
func (c *cluster) testDelete(t *testing.T) {
	c.run(t.Context(), t, "delete", "-f", installer, "--wait=false")
	var left []string
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		left = nil
		for _, o := range install(t) {
			if o.GetKind() == "Namespace" {
				continue
			}
			err := c.client.Get(ctx, client.ObjectKeyFromObject(&o), &o)
			if err == nil {
				left = append(left, o.GetKind()+" "+o.GetName())
			} else if !apierrors.IsNotFound(err) {
				return false, err
			}
		}
		return len(left) == 0, nil
	})
	if err != nil {
		t.Errorf("left: %v (%v)", left, err)
	}
}
