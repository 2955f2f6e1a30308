// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func decoded(t *testing.T, text string) []object {
	t.Helper()
	objects, err := decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func install(t *testing.T) []object {
	t.Helper()
	text, err := os.ReadFile("../../dist/install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return decoded(t, string(text))
}

// TestWhatTheGeneratorDoesNotKnowIsAnError, so that no object and no change of the Deployment is lost in the chart.
func TestWhatTheGeneratorDoesNotKnowIsAnError(t *testing.T) {
	const labelled = "{name: x, labels: {app.kubernetes.io/managed-by: kustomize}}"
	for name, c := range map[string]struct{ object, want string }{
		"a kind":                  {"kind: CronJob\nmetadata: " + labelled, "no place for CronJob"},
		"an object of nobody":     {"kind: Service\nmetadata: {name: x, labels: {a: b}}", "not labelled"},
		"two of one file":         {"kind: Service\nmetadata: " + labelled + "\n---\nkind: Service\nmetadata: " + labelled, "two objects"},
		"a value without a place": {"kind: Service\nmetadata: " + labelled + "\nspec: {a: 'x <<inline .Values>>'}", "not put into its place"},
		"a Deployment without metrics": {
			"kind: Deployment\nmetadata: " + labelled + "\nspec: {template: {spec: {containers: [{image: 'a:b', args: [--x]}]}}}", "turns metrics on",
		},
	} {
		if _, err := chart(inputs{install: append(install(t), decoded(t, c.object)...)}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want an error with %q, got %v", name, c.want, err)
		}
	}
}

func TestBracesOfObjectsAreNoCode(t *testing.T) {
	text, err := template(decoded(t, "kind: Service\nmetadata: {name: x, labels: {app.kubernetes.io/managed-by: kustomize}}\nspec: {a: 'b {{ $value }} c'}")[0])
	if err != nil || !strings.Contains(text, "a: b {{ `{{` }} $value {{ `}}` }} c\n") {
		t.Errorf("got %v and\n%s", err, text)
	}
}

// TestTheImageMayBeOfAnyRegistry: clusters without access to others have one of their own, often on a port, and tags of their own.
func TestTheImageMayBeOfAnyRegistry(t *testing.T) {
	for image, want := range map[string][]string{
		"ghcr.io/fencedlease/fencedlease-manager:v0.1.0": {"ghcr.io/fencedlease/fencedlease-manager", "v0.1.0", "0.1.0"},
		"registry.example:5000/fence:v1.2.3-rc.1":        {"registry.example:5000/fence", "v1.2.3-rc.1", "1.2.3-rc.1"},
		"fence:1.10":       {"fence", "1.10", "0.0.0-image-1-10"},
		"fence:007_latest": {"fence", "007_latest", "0.0.0-image-007-latest"},
	} {
		objects := install(t)
		for _, o := range objects {
			if o.GetKind() == "Deployment" {
				containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
				if err != nil {
					t.Fatal(err)
				}
				containers[0].(map[string]any)["image"] = image
				if err := unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"); err != nil {
					t.Fatal(err)
				}
			}
		}
		files, err := chart(inputs{install: objects})
		if err != nil {
			t.Fatal(err)
		}
		values, of := files["values.yaml"], files["Chart.yaml"]
		if !strings.Contains(values, "repository: "+want[0]+"\n") || !strings.Contains(of, `appVersion: "`+want[1]+`"`) ||
			!strings.Contains(of, "\nversion: \""+want[2]+"\"\n") {
			t.Errorf("%s: want %q, got\n%s\n%s", image, want, of, values)
		}
	}
	for _, image := range []string{"fence", "registry.example:5000/fence"} {
		if _, _, err := splitImage(image); err == nil {
			t.Errorf("%s: want an error: it has no tag", image)
		}
	}
}
