// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// followed returns what a reader does who follows a section: its commands, and an apply of each manifest in between.
func followed(t *testing.T, document, section string) string {
	t.Helper()
	var script strings.Builder
	for _, b := range blocksBySection(t, document)[section] {
		switch b.language {
		case "sh":
			script.WriteString(b.text)
		case "yaml":
			script.WriteString("kubectl apply -f - <<'YAML'\n" + b.text + "YAML\n")
		}
	}
	if script.Len() == 0 {
		t.Fatalf("the section %q of %s has no commands", section, document)
	}
	return script.String()
}

// The commands and manifests of the installation guide and of the README, from an empty cluster to a fenced write.
func TestTheQuickStartWorks(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	cluster := env.StartT(t, env.Options{ControllerManager: true})
	r := newReader(t, cluster)
	kustomize := followed(t, "docs/install.md", "With kustomize")
	const rollout = "kubectl -n fencedlease-system rollout status deployment fencedlease-controller-manager\n"
	if !strings.Contains(kustomize, rollout) {
		t.Fatalf("the guide does not wait for the managers:\n%s", kustomize)
	}
	// No kubelet runs the manager here, so the test does. test/e2e waits as the guide says.
	r.run(t, strings.ReplaceAll(kustomize, rollout, ""))
	readme := followed(t, "README.md", "Use it")
	install, rest, _ := strings.Cut(readme, "kubectl apply -f -")
	if _, other, found := strings.Cut(install, "# or: "); found {
		install += other
	} else {
		t.Error("the README shows one way of installing only")
	}
	r.run(t, install)

	manager, err := product.StartManager(t.Context(), cluster, logr.Discard())
	must(t, err)
	t.Cleanup(func() { must(t, manager.Stop()) })
	must(t, os.WriteFile(filepath.Join(r.checkout, "report.sh"), []byte(`#!/usr/bin/env bash
set -euo pipefail
# An API server needs some seconds to know the schema of a new kind.
until kubectl create -f daily.yaml; do sleep 1; done
`), 0o700))
	r.run(t, `
		go build -o bin/ ./cmd/kubectl-fencedlease
		kubectl apply -f examples/crds.yaml
		kubectl wait --for=condition=Established crd/reports.example.com
		kubectl create namespace reports
		cat >daily.yaml <<'YAML'
apiVersion: example.com/v1
kind: Report
metadata: {name: daily, namespace: reports}
spec: {value: by a leader}
YAML
	`)
	r.run(t, followed(t, "docs/install.md", "Let the manager read what is guarded, and seal it")+
		followed(t, "docs/install.md", "Guard something")+followed(t, "docs/install.md", "What a worker needs"))
	output := r.run(t, "kubectl apply -f -"+rest+`
		kubectl -n reports get report daily -o jsonpath='{.metadata.annotations}'
		! kubectl -n reports patch report daily --type=merge -p '{"spec":{"value":"by anybody"}}' 2>err
		cat err
	`)
	for _, want := range []string{"token.fencedlease.io/report-writer", "the write presents no token"} {
		if !strings.Contains(output, want) {
			t.Errorf("the output does not show %q:\n%s", want, output)
		}
	}
}

// What is not run by the test above must say where it is run, or why it cannot be: a section that is added fails here.
func TestTheCommandsOfTheInstallationGuideAreAllAccountedFor(t *testing.T) {
	elsewhere := map[string]string{
		"With kustomize": "above",
		"Let the manager read what is guarded, and seal it": "above",
		"Guard something":     "above",
		"What a worker needs": "above",
		"With Helm":           "TestTheHelmSectionWorks",
		"With cert-manager":   "test/manifests applies the overlay to cert-manager's definitions; internal/manager changes certificates",
		"On kind":             "the workflow of hosted CI is to run the end-to-end specs on kind: the page says that nobody has",
		"Without a registry":  "test/e2e imports the archive that make image-archive writes",
	}
	for section := range sections(t, "docs/install.md") {
		if elsewhere[section] == "" {
			t.Errorf("nothing runs the commands of the section %q", section)
		}
	}
}
