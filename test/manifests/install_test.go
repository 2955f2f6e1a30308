// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const (
	root      = "../.."
	installer = root + "/dist/install.yaml"

	namespace      = "fencedlease-system"
	serviceAccount = "fencedlease-controller-manager"
)

// decode splits a stream of YAML documents into objects.
func decode(t *testing.T, stream []byte) []unstructured.Unstructured {
	t.Helper()
	var out []unstructured.Unstructured
	reader := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(stream)))
	buffer := make([]byte, len(stream)+1)
	for {
		n, err := reader.Read(buffer)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("split documents: %v", err)
		}
		var object unstructured.Unstructured
		if err := yaml.UnmarshalStrict(buffer[:n], &object.Object); err != nil {
			t.Fatalf("decode document: %v\n%s", err, buffer[:n])
		}
		if len(object.Object) > 0 {
			out = append(out, object)
		}
	}
}

// install returns the objects of dist/install.yaml.
func install(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	b, err := os.ReadFile(installer)
	if err != nil {
		t.Fatalf("read the installer: %v", err)
	}
	return decode(t, b)
}

// typed converts the objects of a kind; a field that the type does not know is an error.
func typed[T any](t *testing.T, objects []unstructured.Unstructured, apiVersion, kind string) []T {
	t.Helper()
	var out []T
	for _, o := range objects {
		if o.GetAPIVersion() != apiVersion || o.GetKind() != kind {
			continue
		}
		var object T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &object, true); err != nil {
			t.Fatalf("convert %s %s: %v", kind, o.GetName(), err)
		}
		out = append(out, object)
	}
	if len(out) == 0 {
		t.Fatalf("no %s of %s", kind, apiVersion)
	}
	return out
}

func deployment(t *testing.T) appsv1.Deployment {
	t.Helper()
	found := typed[appsv1.Deployment](t, install(t), "apps/v1", "Deployment")
	if len(found) != 1 {
		t.Fatalf("deployments: want 1, got %d", len(found))
	}
	return found[0]
}

func container(t *testing.T) corev1.Container {
	t.Helper()
	containers := deployment(t).Spec.Template.Spec.Containers
	if len(containers) != 1 {
		t.Fatalf("containers: want 1, got %d", len(containers))
	}
	return containers[0]
}

// rules returns all rules of roles, by the kind and name of the role.
func rules(t *testing.T) map[string][]rbacv1.PolicyRule {
	t.Helper()
	out := map[string][]rbacv1.PolicyRule{}
	for _, role := range typed[rbacv1.ClusterRole](t, install(t), "rbac.authorization.k8s.io/v1", "ClusterRole") {
		out["ClusterRole "+role.Name] = role.Rules
	}
	for _, role := range typed[rbacv1.Role](t, install(t), "rbac.authorization.k8s.io/v1", "Role") {
		out["Role "+role.Namespace+"/"+role.Name] = role.Rules
	}
	return out
}

func TestNoRoleHasAWildcard(t *testing.T) {
	for role, rules := range rules(t) {
		for _, rule := range rules {
			for _, part := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.ResourceNames, rule.NonResourceURLs) {
				if strings.Contains(part, "*") {
					t.Errorf("%s: wildcard in %v", role, rule)
				}
			}
		}
	}
}

// TestDangerousRightsAreLimitedByName: whoever may write any admission configuration or read any Secret owns the cluster.
// Create of admission configurations is limited too: the manager applies them, and an apply names the object also when it
// creates it. The Secret is created by a request that names nothing.
func TestDangerousRightsAreLimitedByName(t *testing.T) {
	allowed := map[string][]string{
		"secrets":                           {"fencedlease-webhook-cert"},
		"validatingwebhookconfigurations":   {"fencedlease-guards", "fencedlease-validation"},
		"mutatingwebhookconfigurations":     {"fencedlease-guards"},
		"validatingadmissionpolicies":       {"fencedlease-definitions", "fencedlease-marks", "fencedlease-registration"},
		"validatingadmissionpolicybindings": {"fencedlease-definitions", "fencedlease-marks", "fencedlease-registration"},
		"mutatingadmissionpolicies":         {"fencedlease-stamps"},
		"mutatingadmissionpolicybindings":   {"fencedlease-stamps"},
		"clusterroles":                      nil,
		"roles":                             nil,
		"serviceaccounts":                   nil,
		"pods":                              nil,
		"customresourcedefinitions":         nil,
	}
	readOnly := []string{"get", "list", "watch"}
	for role, rules := range rules(t) {
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				names, known := allowed[resource]
				if !known || resource == "secrets" && slices.Equal(rule.Verbs, []string{"create"}) {
					continue
				}
				if resource != "secrets" && !slices.ContainsFunc(rule.Verbs, func(v string) bool { return !slices.Contains(readOnly, v) }) {
					continue
				}
				if len(rule.ResourceNames) == 0 || slices.ContainsFunc(rule.ResourceNames, func(n string) bool { return !slices.Contains(names, n) }) {
					t.Errorf("%s: %v on %s must be limited to %v, is to %v", role, rule.Verbs, resource, names, rule.ResourceNames)
				}
			}
			for _, verb := range rule.Verbs {
				if slices.Contains([]string{"impersonate", "bind", "escalate", "bypass", "guard-cluster"}, verb) {
					t.Errorf("%s: has the verb %s", role, verb)
				}
			}
		}
	}
}

func TestSecretsAreReadInTheManagersNamespaceOnly(t *testing.T) {
	for role, rules := range rules(t) {
		for _, rule := range rules {
			if slices.Contains(rule.Resources, "secrets") && !strings.HasPrefix(role, "Role "+namespace+"/") {
				t.Errorf("%s: reaches secrets", role)
			}
		}
	}
}

// TestUsersRolesAggregate keeps namespace users able to use FencedLeases without a step of the cluster's owner.
func TestUsersRolesAggregate(t *testing.T) {
	want := map[string]string{
		"fencedlease-admin-role":  "admin",
		"fencedlease-editor-role": "edit",
		"fencedlease-viewer-role": "view",
	}
	got := map[string]string{}
	for _, role := range typed[rbacv1.ClusterRole](t, install(t), "rbac.authorization.k8s.io/v1", "ClusterRole") {
		for key, value := range role.Labels {
			if to, ok := strings.CutPrefix(key, "rbac.authorization.k8s.io/aggregate-to-"); ok && value == "true" {
				got[role.Name] = to
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("aggregated roles (-want +got):\n%s", diff)
	}
}

// TestGuardedKindsAreAggregated: the controller manager fills the rules. A manifest that carries rules, even none, would
// take them away at every apply.
func TestGuardedKindsAreAggregated(t *testing.T) {
	for _, o := range install(t) {
		if o.GetKind() != "ClusterRole" || o.GetName() != "fencedlease-guarded-kinds" {
			continue
		}
		if _, found := o.Object["rules"]; found {
			t.Error("the role has rules")
		}
		label := labels.Set{"rbac.fencedlease.io/aggregate-to-guarded-kinds": "true"}
		want := &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: label}}}
		got := typed[rbacv1.ClusterRole](t, []unstructured.Unstructured{o}, "rbac.authorization.k8s.io/v1", "ClusterRole")[0].AggregationRule
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("aggregation (-want +got):\n%s", diff)
		}
		return
	}
	t.Error("no ClusterRole fencedlease-guarded-kinds")
}

// TestBindingsAreWhole: each names a role that is installed, and the manager's service account.
func TestBindingsAreWhole(t *testing.T) {
	installed := rules(t)
	check := func(binding string, roles []string, subjects []rbacv1.Subject) {
		if !slices.ContainsFunc(roles, func(role string) bool { _, ok := installed[role]; return ok }) {
			t.Errorf("%s: role %v is not installed", binding, roles)
		}
		want := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: serviceAccount}}
		if diff := cmp.Diff(want, subjects); diff != "" {
			t.Errorf("%s: subjects (-want +got):\n%s", binding, diff)
		}
	}
	for _, b := range typed[rbacv1.ClusterRoleBinding](t, install(t), "rbac.authorization.k8s.io/v1", "ClusterRoleBinding") {
		check(b.Name, []string{b.RoleRef.Kind + " " + b.RoleRef.Name}, b.Subjects)
	}
	for _, b := range typed[rbacv1.RoleBinding](t, install(t), "rbac.authorization.k8s.io/v1", "RoleBinding") {
		check(b.Namespace+"/"+b.Name, []string{b.RoleRef.Kind + " " + b.RoleRef.Name, "Role " + b.Namespace + "/" + b.RoleRef.Name}, b.Subjects)
	}
	if got := deployment(t).Spec.Template.Spec.ServiceAccountName; got != serviceAccount {
		t.Errorf("service account of the pods: want %s, got %s", serviceAccount, got)
	}
}

// TestPoliciesOpenThePodsPorts: a policy is about the pod's ports, not the Service's. A wrong one refuses every guarded
// write where policies are enforced.
func TestPoliciesOpenThePodsPorts(t *testing.T) {
	ports := map[string]int32{}
	for _, p := range container(t).Ports {
		ports[p.Name] = p.ContainerPort
	}
	pod := labels.Set(deployment(t).Spec.Template.Labels)

	type opening struct {
		Port     int32
		Anywhere bool
	}
	var got []opening
	for _, policy := range typed[networkingv1.NetworkPolicy](t, install(t), "networking.k8s.io/v1", "NetworkPolicy") {
		if policy.Namespace != namespace {
			t.Errorf("%s: in namespace %q", policy.Name, policy.Namespace)
		}
		if selector := selector(t, &policy.Spec.PodSelector); !selector.Matches(pod) {
			t.Errorf("%s: selects no pod of the manager", policy.Name)
		}
		if diff := cmp.Diff([]networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes); diff != "" {
			t.Errorf("%s: types (-want +got):\n%s", policy.Name, diff)
		}
		for _, rule := range policy.Spec.Ingress {
			for _, p := range rule.Ports {
				got = append(got, opening{Port: p.Port.IntVal, Anywhere: len(rule.From) == 0})
			}
		}
	}
	// The probes' port is open to the pod's own node only, by not being named.
	want := []opening{{Port: ports["metrics"], Anywhere: false}, {Port: ports["webhook-server"], Anywhere: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("open ports (-want +got):\n%s", diff)
	}
}

func TestServicesReachThePods(t *testing.T) {
	pod := labels.Set(deployment(t).Spec.Template.Labels)
	var ports []string
	for _, p := range container(t).Ports {
		ports = append(ports, p.Name)
	}
	for _, service := range typed[corev1.Service](t, install(t), "v1", "Service") {
		if !labels.SelectorFromSet(service.Spec.Selector).Matches(pod) {
			t.Errorf("%s: selects no pod of the manager", service.Name)
		}
		for _, p := range service.Spec.Ports {
			if p.TargetPort.Type != intstr.String || !slices.Contains(ports, p.TargetPort.StrVal) {
				t.Errorf("%s: no container port %s", service.Name, p.TargetPort.String())
			}
		}
	}
}

// TestTheStaticWebhookCarriesNoTrust: the manager applies the bundle. A manifest with a bundle, even an empty one, would
// wipe it at every apply.
func TestTheStaticWebhookCarriesNoTrust(t *testing.T) {
	for _, o := range install(t) {
		if !strings.HasSuffix(o.GetKind(), "WebhookConfiguration") {
			continue
		}
		if text, err := yaml.Marshal(o.Object); err != nil || bytes.Contains(text, []byte("caBundle")) {
			t.Errorf("%s: has a caBundle (%v)", o.GetName(), err)
		}
	}
	configurations := typed[admissionregistrationv1.ValidatingWebhookConfiguration](t, install(t), "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")
	if len(configurations) != 1 || configurations[0].Name != "fencedlease-validation" {
		t.Fatalf("want fencedlease-validation only, got %v", configurations)
	}
	services := typed[corev1.Service](t, install(t), "v1", "Service")
	crd := typed[apiextensionsv1.CustomResourceDefinition](t, install(t), "apiextensions.k8s.io/v1", "CustomResourceDefinition")[0]
	for _, hook := range configurations[0].Webhooks {
		service := hook.ClientConfig.Service
		if !slices.ContainsFunc(services, func(s corev1.Service) bool {
			return s.Namespace == service.Namespace && s.Name == service.Name && s.Spec.Ports[0].Port == ptr.Deref(service.Port, 443)
		}) {
			t.Errorf("%s: no Service %s/%s", hook.Name, service.Namespace, service.Name)
		}
		// Leaders acquire and renew while no webhook answers.
		for _, rule := range hook.Rules {
			if diff := cmp.Diff([]string{crd.Spec.Names.Plural}, rule.Resources); diff != "" {
				t.Errorf("%s: resources (-want +got):\n%s", hook.Name, diff)
			}
			// A deletion must go through when the manager is gone already.
			deletes := slices.Contains(rule.Operations, admissionregistrationv1.Delete)
			want := admissionregistrationv1.Fail
			if deletes {
				want = admissionregistrationv1.Ignore
			}
			if got := ptr.Deref(hook.FailurePolicy, ""); got != want || deletes && len(rule.Operations) > 1 {
				t.Errorf("%s: failure policy of %v: want %s, got %s", hook.Name, rule.Operations, want, got)
			}
		}
		if ptr.Deref(hook.SideEffects, "") != admissionregistrationv1.SideEffectClassNone || ptr.Deref(hook.TimeoutSeconds, 10) > 5 {
			t.Errorf("%s: want no side effects and at most 5 seconds, got %v and %v", hook.Name, hook.SideEffects, hook.TimeoutSeconds)
		}
	}
}

// TestTheManagerIsAvailable: guarded writes are refused while no replica answers.
func TestTheManagerIsAvailable(t *testing.T) {
	d := deployment(t)
	pod := labels.Set(d.Spec.Template.Labels)
	if got := ptr.Deref(d.Spec.Replicas, 1); got < 2 {
		t.Errorf("replicas: want at least 2, got %d", got)
	}
	update := d.Spec.Strategy.RollingUpdate
	if update == nil || update.MaxUnavailable.String() != "0" || update.MaxSurge.String() == "0" {
		t.Errorf("roll-out: want a new replica before an old one goes, got %+v", update)
	}
	budgets := typed[policyv1.PodDisruptionBudget](t, install(t), "policy/v1", "PodDisruptionBudget")
	if len(budgets) != 1 || budgets[0].Spec.MinAvailable.String() != "1" || !selector(t, budgets[0].Spec.Selector).Matches(pod) {
		t.Errorf("disruption budget: want one of the manager's pods to stay, got %+v", budgets)
	}
	var spread []string
	for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
		if selector(t, c.LabelSelector).Matches(pod) {
			spread = append(spread, c.TopologyKey)
		}
	}
	if diff := cmp.Diff([]string{"kubernetes.io/hostname", "topology.kubernetes.io/zone"}, spread); diff != "" {
		t.Errorf("spread (-want +got):\n%s", diff)
	}
	c := container(t)
	if c.LivenessProbe == nil || c.ReadinessProbe == nil || c.LivenessProbe.HTTPGet.Path == c.ReadinessProbe.HTTPGet.Path {
		t.Errorf("probes: want a liveness of its own, got %+v and %+v", c.LivenessProbe, c.ReadinessProbe)
	}
	if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("resources: want requests and a limit of memory, got %+v", c.Resources)
	}
	if !c.Resources.Limits.Cpu().IsZero() {
		t.Error("resources: a limit of CPU delays guarded writes")
	}
}

// TestFlowControlIsForTheManager: a schema that does not match the manager protects nothing.
func TestFlowControlIsForTheManager(t *testing.T) {
	levels := map[string]flowcontrolv1.PriorityLevelConfiguration{}
	for _, level := range typed[flowcontrolv1.PriorityLevelConfiguration](t, install(t), "flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration") {
		levels[level.Name] = level
		// Lent seats are held by the writes that wait for what needs them. No write waits for a seal.
		lent := int32(0)
		if level.Name == "fencedlease-seals" {
			lent = 50
			if got := ptr.Deref(level.Spec.Limited.BorrowingLimitPercent, -1); got != 0 {
				t.Errorf("level %s: borrows %d percent", level.Name, got)
			}
		}
		if got := ptr.Deref(level.Spec.Limited.LendablePercent, -1); got != lent {
			t.Errorf("level %s: lends %d percent, want %d", level.Name, got, lent)
		}
	}
	schemas := map[string]flowcontrolv1.FlowSchema{}
	for _, schema := range typed[flowcontrolv1.FlowSchema](t, install(t), "flowcontrol.apiserver.k8s.io/v1", "FlowSchema") {
		schemas[schema.Name] = schema
		if _, ok := levels[schema.Spec.PriorityLevelConfiguration.Name]; !ok {
			t.Errorf("schema %s: level %s is not installed", schema.Name, schema.Spec.PriorityLevelConfiguration.Name)
		}
	}
	reads, leaders, seals := schemas["fencedlease-reads"], schemas["fencedlease-leaders"], schemas["fencedlease-seals"]
	if len(reads.Spec.Rules) != 1 || len(seals.Spec.Rules) != 1 {
		t.Fatalf("schemas fencedlease-reads and -seals: want 1 rule, got %+v and %+v", reads, seals)
	}
	want := []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindServiceAccount,
		ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: namespace, Name: serviceAccount}}}
	if diff := cmp.Diff(want, reads.Spec.Rules[0].Subjects); diff != "" {
		t.Errorf("schema fencedlease-reads: subjects (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, seals.Spec.Rules[0].Subjects); diff != "" {
		t.Errorf("schema fencedlease-seals: subjects (-want +got):\n%s", diff)
	}
	if seals.Spec.MatchingPrecedence <= leaders.Spec.MatchingPrecedence {
		t.Error("reads and writes of leases must match before seals: a verdict and the end of a seal wait for them")
	}
	if reads.Spec.MatchingPrecedence >= leaders.Spec.MatchingPrecedence {
		t.Error("the manager's reads must match before those of leaders")
	}
}

// TestScrapersVerifyTheServer: they send a token, so they must know whom they send it to.
func TestScrapersVerifyTheServer(t *testing.T) {
	b, err := os.ReadFile(root + "/config/prometheus/monitor.yaml")
	if err != nil {
		t.Fatalf("read the monitor: %v", err)
	}
	endpoints, _, err := unstructured.NestedSlice(decode(t, b)[0].Object, "spec", "endpoints")
	if err != nil || len(endpoints) != 1 {
		t.Fatalf("endpoints: want 1, got %v (%v)", endpoints, err)
	}
	want := map[string]any{
		"serverName": "fencedlease-webhook-service." + namespace + ".svc",
		"ca":         map[string]any{"secret": map[string]any{"name": "fencedlease-webhook-cert", "key": "ca.crt"}},
	}
	if diff := cmp.Diff(want, endpoints[0].(map[string]any)["tlsConfig"]); diff != "" {
		t.Errorf("TLS (-want +got):\n%s", diff)
	}
}

// TestEverythingIsOurs: each object is labelled, and what belongs into a namespace says into which.
func TestEverythingIsOurs(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range install(t) {
		id := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if seen[id] {
			t.Errorf("%s: twice", id)
		}
		seen[id] = true
		if o.GetLabels()["app.kubernetes.io/name"] != "fencedlease" {
			t.Errorf("%s: no label", id)
		}
		if !strings.HasPrefix(o.GetName(), "fencedlease-") && o.GetKind() != "CustomResourceDefinition" {
			t.Errorf("%s: no prefix", id)
		}
		switch o.GetNamespace() {
		case "", namespace:
		case "default":
			if o.GetName() != "fencedlease-apiserver-endpoints" {
				t.Errorf("%s: in the namespace default", id)
			}
		default:
			t.Errorf("%s: in a foreign namespace", id)
		}
	}
}

func selector(t *testing.T, s *metav1.LabelSelector) labels.Selector {
	t.Helper()
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatalf("read selector: %v", err)
	}
	return out
}
