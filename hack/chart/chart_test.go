// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"
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
