// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package static_admission_test starts an API server with the sample for static admission, and shows that nobody but the
// manager can change what FencedLease has registered.
package static_admission_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/internal/controller"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

const (
	// sample is the folder of the sample, and installed is where it says that the manifests are.
	sample    = "../../../config/static-admission"
	installed = "/etc/kubernetes/fencedlease-admission"
	// patience bounds every wait. API servers read the folder once a minute.
	patience = 3 * time.Minute
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}

// install copies the sample, as on a control plane node, and returns the path of the configuration and that of the manifest.
func install(t *testing.T) (configuration, manifest string) {
	t.Helper()
	node := t.TempDir()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(sample, name))
		must(t, err)
		return string(text)
	}
	folder := filepath.Join(node, "manifests")
	must(t, os.Mkdir(folder, 0o755))
	manifest = filepath.Join(folder, "fencedlease.yaml")
	must(t, os.WriteFile(manifest, []byte(read("manifests/fencedlease.yaml")), 0o644))
	text := read("admission-configuration.yaml")
	if !strings.Contains(text, "staticManifestsDir: "+installed+"\n") {
		t.Fatalf("the sample does not name %s:\n%s", installed, text)
	}
	configuration = filepath.Join(node, "admission-configuration.yaml")
	must(t, os.WriteFile(configuration, []byte(strings.Replace(text, installed, folder, 1)), 0o644))
	return configuration, manifest
}

func registered() []client.Object {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	return []client.Object{
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: named(controller.GuardsName)},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: named(controller.GuardsName)},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named(controller.MarksName)},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named(controller.MarksName)},
		&admissionv1.MutatingAdmissionPolicy{ObjectMeta: named(controller.StampsName)},
		&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: named(controller.StampsName)},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named(controller.DefinitionsName)},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named(controller.DefinitionsName)},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named(controller.RegistrationName)},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named(controller.RegistrationName)},
	}
}

func TestStaticAdmission(t *testing.T) {
	configuration, manifest := install(t)
	cluster := env.StartT(t, env.Options{APIServerArgs: []string{"--admission-control-config-file=" + configuration}})
	must(t, cluster.InstallGuardedCRD(t.Context()))
	must(t, product.Install(t.Context(), cluster))
	manager, err := product.StartManager(t.Context(), cluster, logr.Discard())
	must(t, err)
	t.Cleanup(func() { must(t, manager.Stop()) })
	admin, err := env.Client(cluster.Config())
	must(t, err)

	// The manager registers, and registers a new guard, as if there were no static policies.
	must(t, product.CreateLease(t.Context(), admin, env.NewLease(cluster.CreateNamespace(t), "report-writer")))
	eventually(t, "everything is registered", func() error {
		for _, o := range registered() {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
		}
		return nil
	})

	merge := func(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), ".static.k8s.io") {
			t.Errorf("%s: want a refusal by a static policy, got %v", what, err)
		}
	}
	for _, o := range registered() {
		kind := strings.TrimPrefix(strings.TrimPrefix(fmt.Sprintf("%T", o), "*"), "v1.") + " " + o.GetName()
		refused(kind+" deleted", admin.Delete(t.Context(), o))
		refused(kind+" without its owner", admin.Patch(t.Context(), o, merge(`{"metadata":{"ownerReferences":null}}`)))
		must(t, admin.Patch(t.Context(), o, merge(`{"metadata":{"labels":{"team":"a"}}}`)))
	}
	for what, tamper := range map[string]struct {
		object client.Object
		patch  string
	}{
		"webhooks removed":           {registered()[0], `{"webhooks":null}`},
		"status webhooks removed":    {registered()[1], `{"webhooks":null}`},
		"mark policy that says yes":  {registered()[2], `{"spec":{"validations":[{"expression":"true"}]}}`},
		"binding that only warns":    {registered()[3], `{"spec":{"validationActions":["Warn"]}}`},
		"stamps that may fail":       {registered()[4], `{"spec":{"failurePolicy":"Ignore"}}`},
		"stamps bound to few places": {registered()[5], `{"spec":{"matchResources":{"objectSelector":{"matchLabels":{"a":"b"}}}}}`},
	} {
		refused(what, admin.Patch(t.Context(), tamper.object, merge(tamper.patch)))
	}
	for _, list := range []client.Object{
		&admissionv1.ValidatingWebhookConfiguration{}, &admissionv1.ValidatingAdmissionPolicyBinding{}, &admissionv1.MutatingAdmissionPolicy{},
	} {
		refused("all deleted at once", admin.DeleteAllOf(t.Context(), list))
	}
	_, err = cluster.Kubectl(t.Context(), "delete", "crd", controller.CRDName)
	if err == nil || !strings.Contains(err.Error(), "fencedlease-definition.static.k8s.io") {
		t.Errorf("the definition of FencedLease is deleted: %v", err)
	}
	// Nobody takes the static policies away through the API, nor makes others of their kind.
	for _, name := range []string{"fencedlease-registration.static.k8s.io", "other.static.k8s.io"} {
		policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		policy.Spec = admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{}, Validations: []admissionv1.Validation{{Expression: "true"}},
		}
		if err := admin.Create(t.Context(), policy); err == nil {
			t.Errorf("%s can be created through the API", name)
		}
		if err := admin.Delete(t.Context(), policy); !apierrors.IsNotFound(err) {
			t.Errorf("%s is seen through the API: %v", name, err)
		}
	}

	// The way past it is on the nodes.
	must(t, os.Remove(manifest))
	eventually(t, "the folder is read again", func() error { return admin.Delete(t.Context(), registered()[3], client.DryRunAll) })
}
