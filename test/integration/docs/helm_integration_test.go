// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docs_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// The commands of the installation guide that are Helm's, by its own program: install, upgrade while a lease is held, uninstall with the
// definition kept and without.
func TestTheHelmSectionWorks(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	cluster := env.StartT(t, env.Options{ControllerManager: true})
	r := newReader(t, cluster)
	build := exec.CommandContext(t.Context(), "go", "-C", filepath.Join(cluster.ModuleRoot(), "hack/tools/helm"), "build",
		"-o", filepath.Join(r.checkout, "bin", "helm"), "helm.sh/helm/v4/cmd/helm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build helm: %v\n%s", err, out)
	}
	home := t.TempDir()
	r.environment = append(r.environment, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	commands := followed(t, "docs/install.md", "With Helm")
	if !strings.Contains(commands, "helm install fencedlease dist/chart ") || !strings.Contains(commands, " --wait\n") {
		t.Fatalf("the guide does not install the chart, or does not wait for the managers:\n%s", commands)
	}
	// No kubelet runs the manager here, so the test does.
	install := strings.ReplaceAll(commands, " --wait\n", "\n")
	r.run(t, install+`
		kubectl apply -f examples/crds.yaml
		kubectl wait --for=condition=Established crd/reports.example.com
	`)
	manager, err := product.StartManager(t.Context(), cluster, logr.Discard())
	must(t, err)
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			must(t, manager.Stop())
		}
	})

	// API servers call the manager by URL, so an upgrade without that value would add the Service to it.
	output := r.run(t, `
		go build -o bin/ ./cmd/kubectl-fencedlease
		kubectl apply -f examples/reports.yaml
		kubectl -n reports wait fencedlease/report-writer --for=condition=Ready --timeout=60s
		kubectl fencedlease acquire report-writer -n reports --identity=me
		kubectl -n reports get fencedlease report-writer -o jsonpath='{.metadata.uid} {.status.token}' >before
		helm upgrade fencedlease dist/chart --namespace fencedlease-system --set crd.keep=true --set manager.replicas=3 \
			--set manager.webhookURL=https://127.0.0.1:`+strconv.Itoa(manager.Port)+` \
			--set-json 'rbac.guardedKinds=[{"apiGroups":["example.com"],"resources":["reports"],"verbs":["get","list"]}]'
		kubectl -n reports get fencedlease report-writer -o jsonpath='{.metadata.uid} {.status.token}' >after
		diff before after
		kubectl get clusterrole fencedlease-guarded-kinds-of-release -o jsonpath='{.rules[0].resources}'
		kubectl -n fencedlease-system get deployment fencedlease-controller-manager -o jsonpath='replicas {.spec.replicas}'
	`)
	for _, want := range []string{`["reports"]`, "replicas 3"} {
		if !strings.Contains(output, want) {
			t.Errorf("the upgrade does not show %q:\n%s", want, output)
		}
	}

	must(t, manager.Stop())
	stopped = true
	r.run(t, `
		helm uninstall fencedlease --namespace fencedlease-system
		kubectl -n reports get fencedlease report-writer -o jsonpath='{.metadata.uid} {.status.token}' >after
		diff before after
		! kubectl -n reports create -f - <<'YAML' 2>err
apiVersion: example.com/v1
kind: Report
metadata: {name: daily}
spec: {value: by anybody}
YAML
		grep fencedlease err
	`)
	_, left, _ := strings.Cut(sections(t, "docs/operations.md")["Uninstall"], "\n")
	output = r.run(t, strings.ReplaceAll(install, " --create-namespace", "")+`
		kubectl -n reports get fencedlease report-writer -o jsonpath='{.metadata.uid} {.status.token}' >after
		diff before after
		helm uninstall fencedlease --namespace fencedlease-system
		look() { `+left+` }
		until look | grep "nothing is left"; do sleep 1; done
		kubectl get crd -o name
	`)
	if strings.Contains(output, "fencedleases.coordination") {
		t.Errorf("the definition is left:\n%s", output)
	}
}
