// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docs_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// blocksBySection returns the blocks of a document by the headings that they stand under.
func blocksBySection(t *testing.T, document string) map[string][]block {
	t.Helper()
	found := map[string][]block{}
	for _, part := range regexp.MustCompile(`(?m)^## `).Split(text(t, document), -1)[1:] {
		title, content, _ := strings.Cut(part, "\n")
		found[title] = append(found[title], blocksIn(content)...)
	}
	return found
}

// sections returns the commands of a document by the headings that they stand under.
func sections(t *testing.T, document string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for title, blocks := range blocksBySection(t, document) {
		for _, b := range blocks {
			switch b.language {
			case "sh":
				found[title] += b.text
			case "sh openssl":
				if _, err := exec.LookPath("openssl"); err == nil {
					found[title] += b.text
				}
			}
		}
	}
	return found
}

// The commands of the operations guide, on a cluster where the lease of the leader guide is held.
func TestTheOperationsGuideWorks(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	cluster := env.StartT(t, env.Options{ControllerManager: true})
	must(t, product.Install(t.Context(), cluster))
	// The Prometheus operator's definitions, as far as its objects are checked here: not at all.
	must(t, cluster.InstallCRDFiles(t.Context(), filepath.Join("testdata", "monitoring.yaml")))
	manager, err := product.StartManager(t.Context(), cluster, logr.Discard())
	must(t, err)
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			must(t, manager.Stop())
		}
	})

	reader := newReader(t, cluster)
	reader.run(t, `
		go build -o bin/ ./cmd/kubectl-fencedlease
		kubectl create namespace monitoring
		kubectl apply -f config/samples/guarded_kinds_role.yaml -f examples/crds.yaml
		kubectl wait --for=condition=Established crd/reports.example.com
		kubectl apply -f examples/reports.yaml
		kubectl wait fencedlease/report-writer -n reports --for=condition=Ready --timeout=60s
		kubectl fencedlease acquire report-writer -n reports --identity=me
		token=$(kubectl get fencedlease report-writer -n reports -o jsonpath='{.status.token}')
		cat >daily.yaml <<'YAML'
apiVersion: example.com/v1
kind: Report
metadata: {name: daily, namespace: reports}
spec: {value: by a leader}
YAML
		# An API server needs some seconds to know the schema of a new kind.
		until kubectl fencedlease apply -n reports --token="$token" -f daily.yaml; do sleep 1; done
	`)

	commands := sections(t, "docs/operations.md")
	for _, step := range []struct {
		section string
		// shows are texts of the output; then is what must work afterwards.
		shows []string
		then  string
	}{
		{section: "Lease durations", shows: []string{"report-writer patched"}, then: `
			kubectl -n reports wait fencedlease/report-writer --for=condition=Ready --timeout=60s
			until kubectl -n reports get fencedlease report-writer -o jsonpath='{.metadata.generation} {.status.observedGeneration}' | grep -E "^([0-9]+) \\1$"; do sleep 1; done
			kubectl -n reports wait fencedlease/report-writer --for=condition=Ready --timeout=60s
		`},
		{section: "Metrics", shows: []string{"servicemonitor.monitoring.coreos.com/", "prometheusrule.monitoring.coreos.com/"}},
		{section: "Looking around", shows: []string{"report-writer", "all are Ready", "MissingToken"}},
		{section: "Certificates", shows: []string{
			"validatingwebhookconfiguration/fencedlease-validation trusts", "validatingwebhookconfiguration/fencedlease-guards trusts",
			"mutatingwebhookconfiguration/fencedlease-guards trusts",
		}},
		{section: "Restore", shows: []string{"report-writer patched"}},
		{section: "Break-glass", shows: []string{"daily patched"}, then: `
			until kubectl -n reports get events --field-selector=involvedObject.name=report-writer,reason=WriteOverridden | grep "moved by hand"; do sleep 1; done
		`},
		{section: "No manager answers", shows: []string{"deleted"}, then: `
			kubectl -n reports patch report daily --type=merge -p '{"spec":{"value":"without a guard"}}'
			! kubectl -n reports annotate report daily token.fencedlease.io/report-writer- 2>err
			grep fencedlease-marks err
			! kubectl -n reports patch fencedlease report-writer --type=merge -p '{"spec":{"leaseDurationSeconds":30}}' 2>err
			grep "failed calling webhook" err
		`},
		{section: "Uninstall", shows: []string{"nothing is left"}, then: `
			kubectl -n reports patch report daily --type=merge -p '{"spec":{"value":"free"}}'
			kubectl -n reports annotate report daily token.fencedlease.io/report-writer-
		`},
	} {
		if step.section == "No manager answers" {
			must(t, manager.Stop())
			stopped = true
			reader.run(t, `! kubectl -n reports patch report daily --type=merge -p '{"spec":{"value":"nobody answers"}}'`)
			metricsOfAPIServers(t, cluster)
		}
		script := commands[step.section]
		if script == "" {
			t.Fatalf("the section %q has no commands", step.section)
		}
		delete(commands, step.section)
		output := reader.run(t, script+step.then)
		for _, want := range step.shows {
			if !strings.Contains(output, want) {
				t.Errorf("%s: the output does not show %q:\n%s", step.section, want, output)
			}
		}
	}
	for section := range commands {
		t.Errorf("the commands of the section %q were not run", section)
	}
}

// metricsOfAPIServers looks for what docs/metrics.md and the alerts say of API servers on one whose webhook has refused and has
// then failed. Rejections of priority levels are not provoked here: that the manager's reads have one is what is looked for.
func metricsOfAPIServers(t *testing.T, cluster *env.Environment) {
	t.Helper()
	_, section, found := strings.Cut(text(t, "docs/metrics.md"), "\n## Of API servers\n")
	if !found {
		t.Fatal("docs/metrics.md says nothing of API servers")
	}
	served, err := cluster.Kubectl(t.Context(), "get", "--raw", "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for name, series := range map[string]string{
		"apiserver_admission_webhook_rejection_count":            `{error_type="calling_webhook_error",name="[^"]+[.]guards[.]fencedlease[.]io",`,
		"apiserver_admission_webhook_admission_duration_seconds": `_bucket{name="[^"]+[.]guards[.]fencedlease[.]io",.*le=`,
		"apiserver_validating_admission_policy_check_total":      `{.*policy="fencedlease-marks"`,
		"apiserver_flowcontrol_rejected_requests_total":          "",
	} {
		if !strings.Contains(section, "| `"+name+"` |") {
			t.Errorf("docs/metrics.md does not have %s", name)
		}
		pattern := "(?m)^" + name + series
		if series == "" {
			pattern = `(?m)^apiserver_flowcontrol_dispatched_requests_total{.*priority_level="fencedlease-reads"`
		}
		if !regexp.MustCompile(pattern).MatchString(served) {
			t.Errorf("the API server shows no %s", pattern)
		}
	}
}
