// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package helmtest

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	root      = "../../.."
	folder    = root + "/dist/chart"
	namespace = "fencedlease-system"
)

type objects map[string]unstructured.Unstructured

// split returns the objects of a stream by kind, namespace and name.
func split(t *testing.T, stream []byte) objects {
	t.Helper()
	found := objects{}
	reader := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(stream)))
	buffer := make([]byte, len(stream)+1)
	for {
		n, err := reader.Read(buffer)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		var o unstructured.Unstructured
		if err := yaml.UnmarshalStrict(buffer[:n], &o.Object); err != nil {
			t.Fatalf("decode document: %v\n%s", err, buffer[:n])
		}
		if len(o.Object) == 0 {
			continue
		}
		id := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if _, twice := found[id]; twice {
			t.Errorf("%s is there twice", id)
		}
		found[id] = o
	}
}

// values reads values as a file of them has them.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// render does what helm template does.
func render(t *testing.T, in, text string) (objects, string, error) {
	t.Helper()
	chart, err := loader.LoadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	capabilities := common.DefaultCapabilities.Copy()
	options := common.ReleaseOptions{Name: "fence", Namespace: in, Revision: 1, IsInstall: true}
	// It checks the values against the schema.
	all, err := util.ToRenderValues(chart, values(t, text), options, capabilities)
	if err != nil {
		return nil, "", err
	}
	rendered, err := (engine.Engine{Strict: true}).Render(chart, all)
	if err != nil {
		return nil, "", err
	}
	var stream bytes.Buffer
	notes := ""
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		switch path.Ext(name) {
		case ".yaml":
			stream.WriteString("---\n" + rendered[name] + "\n")
		case ".txt":
			notes = rendered[name]
		}
	}
	return split(t, stream.Bytes()), notes, nil
}

func mustRender(t *testing.T, in, text string) objects {
	t.Helper()
	found, _, err := render(t, in, text)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func installer(t *testing.T) objects {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "dist/install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return split(t, text)
}

// likeKustomize undoes the one difference that every object has.
func likeKustomize(t *testing.T, o unstructured.Unstructured) unstructured.Unstructured {
	t.Helper()
	labels := o.GetLabels()
	if labels["app.kubernetes.io/managed-by"] != "Helm" {
		t.Errorf("%s %s is managed by %q", o.GetKind(), o.GetName(), labels["app.kubernetes.io/managed-by"])
	}
	labels["app.kubernetes.io/managed-by"] = "kustomize"
	o.SetLabels(labels)
	return o
}

func TestHelmLint(t *testing.T) {
	for name, text := range map[string]string{"defaults": "", "everything": everything} {
		result := lint.RunAll(folder, values(t, text), namespace)
		for _, message := range result.Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, message)
			}
		}
	}
}

// TestDefaultsInstallWhatKustomizeDoes compares object by object. The namespace is Helm's to make, and the pull policy has the value that
// API servers give to an image with a tag.
func TestDefaultsInstallWhatKustomizeDoes(t *testing.T) {
	want, got := installer(t), mustRender(t, namespace, "")
	delete(want, "Namespace /"+namespace)
	for id, o := range got {
		o = likeKustomize(t, o)
		if o.GetKind() == "Deployment" {
			containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			if err != nil {
				t.Fatal(err)
			}
			container := containers[0].(map[string]any)
			if container["imagePullPolicy"] != "IfNotPresent" {
				t.Errorf("pull policy: %v", container["imagePullPolicy"])
			}
			delete(container, "imagePullPolicy")
			if err := unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want[id].Object, o.Object); diff != "" {
			t.Errorf("%s (-kustomize +chart):\n%s", id, diff)
		}
	}
	for id := range want {
		if _, ok := got[id]; !ok {
			t.Errorf("the chart does not install %s", id)
		}
	}
}

// everything sets every value to something else than its default.
const everything = `
manager:
  replicas: 3
  image: {repository: registry.example.com/fence, tag: v9, pullPolicy: Always}
  imagePullSecrets: [{name: pull}]
  args: [--drain-delay=30s]
  env: [{name: GOMEMLIMIT, value: 400MiB}]
  webhookURL: https://fence.example.com:8443
  resources: {requests: {cpu: "1"}}
  priorityClassName: system-node-critical
  terminationGracePeriodSeconds: 90
  podAnnotations: {example.com/note: here}
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{operator: Exists}]
  affinity: {nodeAffinity: {}}
  podDisruptionBudget: {minAvailable: 2}
rbac:
  guardedKinds:
  - {apiGroups: [example.com], resources: [reports], verbs: [get, list]}
crd: {keep: true}
certManager: {enable: true}
prometheus: {enable: true, labels: {release: prometheus}}
`

// field returns what is at a path of an object; numbers are indexes of lists.
func field(t *testing.T, o unstructured.Unstructured, path ...any) any {
	t.Helper()
	var at any = o.Object
	for _, step := range path {
		switch s := step.(type) {
		case string:
			in, _ := at.(map[string]any)
			at = in[s]
		case int:
			in, _ := at.([]any)
			if s >= len(in) {
				return nil
			}
			at = in[s]
		}
	}
	return at
}

func TestValuesReachTheirPlaces(t *testing.T) {
	// Another namespace than kustomize's.
	got := mustRender(t, "fences", everything)
	for id, o := range got {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), namespace) {
			t.Errorf("%s names the namespace %s", id, namespace)
		}
	}
	deployment := got["Deployment fences/fencedlease-controller-manager"]
	pod := func(path ...any) any {
		return field(t, deployment, append([]any{"spec", "template", "spec"}, path...)...)
	}
	list := func(items ...any) []any { return items }
	for name, c := range map[string]struct{ want, got any }{
		"replicas": {float64(3), field(t, deployment, "spec", "replicas")},
		"image":    {"registry.example.com/fence:v9", pod("containers", 0, "image")},
		"policy":   {"Always", pod("containers", 0, "imagePullPolicy")},
		"arguments": {
			list("--leader-elect", "--metrics-bind-address=:8443", "--health-probe-bind-address=:8081", "--webhook-port=9443",
				"--webhook-cert-path=/etc/fencedlease/webhook-server-cert", "--webhook-url=https://fence.example.com:8443", "--drain-delay=30s"),
			pod("containers", 0, "args"),
		},
		"environment":   {map[string]any{"name": "GOMEMLIMIT", "value": "400MiB"}, pod("containers", 0, "env", 2)},
		"resources":     {"1", pod("containers", 0, "resources", "requests", "cpu")},
		"pull secrets":  {list(map[string]any{"name": "pull"}), pod("imagePullSecrets")},
		"priority":      {"system-node-critical", pod("priorityClassName")},
		"grace":         {float64(90), pod("terminationGracePeriodSeconds")},
		"nodes":         {map[string]any{"kubernetes.io/os": "linux"}, pod("nodeSelector")},
		"tolerations":   {list(map[string]any{"operator": "Exists"}), pod("tolerations")},
		"affinity":      {map[string]any{"nodeAffinity": map[string]any{}}, pod("affinity")},
		"volume":        {"fencedlease-webhook-server-cert", pod("volumes", 0, "secret", "secretName")},
		"mount":         {"/etc/fencedlease/webhook-server-cert", pod("containers", 0, "volumeMounts", 0, "mountPath")},
		"annotation":    {"here", field(t, deployment, "spec", "template", "metadata", "annotations", "example.com/note")},
		"budget":        {float64(2), field(t, got["PodDisruptionBudget fences/fencedlease-controller-manager"], "spec", "minAvailable")},
		"quota":         {list("system-node-critical"), field(t, got["ResourceQuota fences/fencedlease-critical-pods"], "spec", "scopeSelector", "matchExpressions", 0, "values")},
		"kept":          {"keep", field(t, got["CustomResourceDefinition /fencedleases.coordination.fencedlease.io"], "metadata", "annotations", "helm.sh/resource-policy")},
		"guarded kinds": {list("reports"), field(t, got["ClusterRole /fencedlease-guarded-kinds-of-release"], "rules", 0, "resources")},
		"aggregated":    {"true", field(t, got["ClusterRole /fencedlease-guarded-kinds-of-release"], "metadata", "labels", "rbac.fencedlease.io/aggregate-to-guarded-kinds")},
		"names": {
			list("fencedlease-webhook-service.fences.svc", "fencedlease-webhook-service.fences.svc.cluster.local", "fence.example.com"),
			field(t, got["Certificate fences/fencedlease-webhook-server"], "spec", "dnsNames"),
		},
		"scraped by": {
			"fencedlease-webhook-server-cert",
			field(t, got["ServiceMonitor fences/fencedlease-controller-manager-metrics-monitor"], "spec", "endpoints", 0, "tlsConfig", "ca", "secret", "name"),
		},
		"selected by": {"prometheus", field(t, got["PrometheusRule fences/fencedlease-controller-manager-alerts"], "metadata", "labels", "release")},
		"flow schema": {"fences", field(t, got["FlowSchema /fencedlease-reads"], "spec", "rules", 0, "subjects", 0, "serviceAccount", "namespace")},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	// Braces of alerts are not the chart's.
	rules, err := yaml.Marshal(got["PrometheusRule fences/fencedlease-controller-manager-alerts"].Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(root, "config/prometheus/rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	plain := split(t, source)["PrometheusRule "+namespace+"/controller-manager-alerts"]
	want, err := yaml.Marshal(plain.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(rules)); diff != "" {
		t.Errorf("alerts (-kustomize +chart):\n%s", diff)
	}
}

// TestWebhooksAreCalledByURL: what the manager writes into the cluster is what the chart has, so that upgrades change nothing back, and
// cert-manager's certificate is good for it.
func TestWebhooksAreCalledByURL(t *testing.T) {
	const path = "/validate-coordination-fencedlease-io-v1alpha1-fencedlease"
	services := []any{"fencedlease-webhook-service." + namespace + ".svc", "fencedlease-webhook-service." + namespace + ".svc.cluster.local"}
	for at, c := range map[string]struct {
		url       string
		names     []any
		addresses any
	}{
		"":                               {"", services, nil},
		"https://fence.example.com":      {"https://fence.example.com" + path, append(slices.Clone(services), "fence.example.com"), nil},
		"https://fence.example.com:843/": {"https://fence.example.com:843" + path, append(slices.Clone(services), "fence.example.com"), nil},
		"https://192.0.2.1:8443":         {"https://192.0.2.1:8443" + path, services, []any{"192.0.2.1"}},
		"https://[2001:db8::1]:8443":     {"https://[2001:db8::1]:8443" + path, services, []any{"2001:db8::1"}},
	} {
		got := mustRender(t, namespace, "certManager: {enable: true}\nmanager: {webhookURL: '"+at+"'}")
		configuration := got["ValidatingWebhookConfiguration /fencedlease-validation"]
		for i := range 2 {
			want := map[string]any{"url": c.url}
			if c.url == "" {
				want = map[string]any{"service": map[string]any{"name": "fencedlease-webhook-service", "namespace": namespace, "path": path}}
			}
			if diff := cmp.Diff(want, field(t, configuration, "webhooks", i, "clientConfig")); diff != "" {
				t.Errorf("%q: webhook %d is called by (-want +got):\n%s", at, i, diff)
			}
		}
		certificate := got["Certificate "+namespace+"/fencedlease-webhook-server"]
		if diff := cmp.Diff(c.names, field(t, certificate, "spec", "dnsNames")); diff != "" {
			t.Errorf("%q: names (-want +got):\n%s", at, diff)
		}
		if diff := cmp.Diff(c.addresses, field(t, certificate, "spec", "ipAddresses")); diff != "" {
			t.Errorf("%q: addresses (-want +got):\n%s", at, diff)
		}
	}
}

func TestPartsCanBeLeftOut(t *testing.T) {
	all := mustRender(t, namespace, "prometheus: {enable: true}")
	for text, gone := range map[string][]string{
		"crd: {enable: false}":           {"CustomResourceDefinition"},
		"networkPolicy: {enable: false}": {"NetworkPolicy"},
		"flowControl: {enable: false}":   {"FlowSchema", "PriorityLevelConfiguration"},
		"manager: {podDisruptionBudget: {enable: false}, resourceQuota: {enable: false}}": {"PodDisruptionBudget", "ResourceQuota"},
		"manager: {priorityClassName: ''}":                                                {"ResourceQuota"},
		"prometheus: {enable: false}":                                                     {"ServiceMonitor", "PrometheusRule"},
		"rbac: {userRoles: {enable: false}}": {
			"ClusterRole /fencedlease-admin-role", "ClusterRole /fencedlease-editor-role", "ClusterRole /fencedlease-viewer-role",
		},
		"metrics: {enable: false}": {
			"ServiceMonitor", "PrometheusRule", "ClusterRole /fencedlease-metrics", "ClusterRoleBinding /fencedlease-metrics",
			"Service " + namespace + "/fencedlease-controller-manager-metrics-service", "NetworkPolicy " + namespace + "/fencedlease-allow-metrics-traffic",
		},
	} {
		if !strings.HasPrefix(text, "prometheus") {
			text += "\nprometheus: {enable: true}"
		}
		got := mustRender(t, namespace, text)
		for id := range all {
			_, there := got[id]
			out := slices.ContainsFunc(gone, func(begin string) bool {
				return id == begin || strings.HasPrefix(id, begin) && (!strings.Contains(begin, "/") || strings.HasSuffix(begin, "-metrics"))
			})
			if there == out {
				t.Errorf("%q: %s: want it left out: %v", text, id, out)
			}
		}
	}
}

func TestValuesAreChecked(t *testing.T) {
	for _, text := range []string{
		"manager: {replicas: two}", "manager: {replica: 2}", "manager: {webhookURL: 'http://x'}", "manager: {image: {pullPolicy: Sometimes}}",
		"crds: {enable: true}", "metrics: {enable: 'yes'}", "manager: {args: [serve]}",
		"rbac: {guardedKinds: [{apiGroups: [example.com], resources: [reports], verbs: ['*']}]}",
	} {
		if _, _, err := render(t, namespace, text); err == nil || !strings.Contains(err.Error(), "schema") {
			t.Errorf("%s: want a complaint of the schema, got %v", text, err)
		}
	}
}

func TestNotesSayWhatIsLeftToDo(t *testing.T) {
	for text, want := range map[string]string{"": "rbac.guardedKinds", "crd: {keep: true}": "delete customresourcedefinition"} {
		_, notes, err := render(t, "fences", text)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(notes, want) || !strings.Contains(notes, "-n fences") {
			t.Errorf("%q: the notes do not say %q:\n%s", text, want, notes)
		}
	}
}

// TestEveryValueIsDescribed: the schema knows every default, and the defaults every property of the schema.
func TestEveryValueIsDescribed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	raw, err := os.ReadFile(filepath.Join(folder, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	definitions := schema["definitions"].(map[string]any)
	var compare func(at string, schema, defaults map[string]any)
	compare = func(at string, schema, defaults map[string]any) {
		if ref, ok := schema["$ref"].(string); ok {
			schema = definitions[path.Base(ref)].(map[string]any)
		}
		properties, ok := schema["properties"].(map[string]any)
		if !ok {
			return
		}
		for name, property := range properties {
			if name == "global" {
				continue
			}
			value, ok := defaults[name]
			if !ok {
				t.Errorf("values.yaml has no %s.%s", at, name)
			}
			if inner, ok := value.(map[string]any); ok {
				compare(at+"."+name, property.(map[string]any), inner)
			}
		}
	}
	compare("", schema, values(t, string(text)))
}
