// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package manifests

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// definitions returns the folder of a module that hack/crds names.
func definitions(t *testing.T, module string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "-C", filepath.Join(root, "hack/crds"), "mod", "download", "-json", module)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("download %s: %v\n%s", module, err, out)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(out, &found); err != nil || found.Dir == "" {
		t.Fatalf("download %s: %v\n%s", module, err, out)
	}
	return found.Dir
}

// TestOthersKinds applies what depends on cert-manager and on the Prometheus operator to an API server with their definitions, with
// strict validation. Their programs do not run here.
func TestOthersKinds(t *testing.T) {
	c := start(t)
	ctx := t.Context()
	certManager := filepath.Join(definitions(t, "github.com/cert-manager/cert-manager"), "deploy/crds")
	operator := filepath.Join(definitions(t, "github.com/prometheus-operator/prometheus-operator"), "example/prometheus-operator-crd")
	for _, file := range []string{
		filepath.Join(certManager, "cert-manager.io_certificates.yaml"), filepath.Join(certManager, "cert-manager.io_issuers.yaml"),
		filepath.Join(operator, "monitoring.coreos.com_prometheusrules.yaml"), filepath.Join(operator, "monitoring.coreos.com_servicemonitors.yaml"),
	} {
		c.run(ctx, t, "create", "-f", file)
	}
	c.run(ctx, t, "wait", "--for=condition=Established", "--timeout=60s", "crd/certificates.cert-manager.io", "crd/issuers.cert-manager.io",
		"crd/prometheusrules.monitoring.coreos.com", "crd/servicemonitors.monitoring.coreos.com")
	for _, folder := range []string{"config/certmanager", "config/prometheus", "config/certmanager/prometheus"} {
		c.run(ctx, t, "apply", "--server-side", "--validate=strict", "-k", filepath.Join(root, folder))
	}
	// The validation is strict: it finds a field that the definition does not have.
	cmd := exec.CommandContext(ctx, c.kubectl, "--kubeconfig", c.kubeconfig, "apply", "--server-side", "--validate=strict", "-f", "-")
	cmd.Stdin = strings.NewReader(`{"apiVersion":"cert-manager.io/v1","kind":"Issuer","metadata":{"name":"x","namespace":"default"},"spec":{"selfSinged":{}}}`)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "selfSinged") {
		t.Errorf("a wrong field is not noticed: %v\n%s", err, out)
	}
}

// TestCertManagersCertificateFits: what cert-manager makes is what the manager serves and API servers verify.
func TestCertManagersCertificateFits(t *testing.T) {
	objects := decode(t, build(t, "config/certmanager"))
	find := func(kind, name string) map[string]any {
		i := slices.IndexFunc(objects, func(o unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
		if i < 0 {
			t.Fatalf("no %s %s", kind, name)
		}
		if objects[i].GetNamespace() != namespace {
			t.Errorf("%s %s is in namespace %q", kind, name, objects[i].GetNamespace())
		}
		return objects[i].Object["spec"].(map[string]any)
	}
	server, ca := find("Certificate", "fencedlease-webhook-server"), find("Certificate", "fencedlease-webhook-ca")
	issuer := func(certificate map[string]any) map[string]any {
		return find("Issuer", certificate["issuerRef"].(map[string]any)["name"].(string))
	}
	if diff := cmp.Diff(map[string]any{"secretName": ca["secretName"]}, issuer(server)["ca"]); diff != "" {
		t.Errorf("the issuer of serving certificates (-want +got):\n%s", diff)
	}
	if _, ok := issuer(ca)["selfSigned"]; !ok || ca["isCA"] != true {
		t.Errorf("the CA is signed by %v", issuer(ca))
	}
	want := []any{"fencedlease-webhook-service." + namespace + ".svc", "fencedlease-webhook-service." + namespace + ".svc.cluster.local"}
	if diff := cmp.Diff(want, server["dnsNames"]); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}

	// Nothing but the Deployment differs from the default.
	plain := map[string]unstructured.Unstructured{}
	for _, o := range install(t) {
		plain[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o
	}
	for _, o := range objects {
		before, ok := plain[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()]
		if !ok && o.GroupVersionKind().Group != "cert-manager.io" {
			t.Errorf("%s %s is not part of the default", o.GetKind(), o.GetName())
		}
		if diff := cmp.Diff(before, o); ok && o.GetKind() != "Deployment" && diff != "" {
			t.Errorf("%s %s (-default +cert-manager):\n%s", o.GetKind(), o.GetName(), diff)
		}
	}
	d := typed[appsv1.Deployment](t, objects, "apps/v1", "Deployment")[0].Spec.Template.Spec
	if len(d.Volumes) != 1 || len(d.Containers[0].VolumeMounts) != 1 {
		t.Fatalf("volumes: want one, got %+v and %+v", d.Volumes, d.Containers[0].VolumeMounts)
	}
	mount := d.Containers[0].VolumeMounts[0]
	if d.Volumes[0].Secret == nil || d.Volumes[0].Secret.SecretName != server["secretName"] || mount.Name != d.Volumes[0].Name ||
		mount.SubPath != "" || !slices.Contains(d.Containers[0].Args, "--webhook-cert-path="+mount.MountPath) {
		t.Errorf("the Secret %v is not what is served: %+v %+v %v", server["secretName"], d.Volumes, mount, d.Containers[0].Args)
	}
	if got := append(slices.Clone(container(t).Args), "--webhook-cert-path="+mount.MountPath); cmp.Diff(got, d.Containers[0].Args) != "" {
		t.Errorf("arguments: %s", cmp.Diff(got, d.Containers[0].Args))
	}
	monitors := decode(t, build(t, "config/certmanager/prometheus"))
	i := slices.IndexFunc(monitors, func(o unstructured.Unstructured) bool { return o.GetKind() == "ServiceMonitor" })
	endpoints, _, err := unstructured.NestedSlice(monitors[i].Object, "spec", "endpoints")
	if err != nil {
		t.Fatal(err)
	}
	secret, _, _ := unstructured.NestedString(endpoints[0].(map[string]any), "tlsConfig", "ca", "secret", "name")
	if secret != server["secretName"] {
		t.Errorf("scrapers verify by the Secret %s, want %s", secret, server["secretName"])
	}
}
