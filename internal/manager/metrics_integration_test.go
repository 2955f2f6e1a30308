// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package manager_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fencedlease/fencedlease/internal/manager"
	"github.com/fencedlease/fencedlease/test/env"
)

func (w *world) testMetricsEndpoint(t *testing.T) {
	port, err := w.cluster.Port()
	must(t, err)
	m := w.start(t, func(o *manager.Options) { o.MetricsAddr = env.Local(port) })
	// As a program the manager has its metrics in the registry that the endpoint serves. Here each manager has its own.
	must(t, metrics.Registry.Register(m.Registry))
	t.Cleanup(func() { metrics.Registry.Unregister(m.Registry) })
	namespace := w.cluster.CreateNamespace(t)
	scraper, err := w.cluster.ServiceAccount(t.Context(), namespace, "scraper")
	must(t, err)
	stranger, err := w.cluster.ServiceAccount(t.Context(), namespace, "stranger")
	must(t, err)
	must(t, w.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "fencedlease-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "scraper"}},
	}))

	// The certificate is for the webhook's Service, by the authority in the Secret: what the ServiceMonitor trusts.
	c := w.httpClient(t)
	url := "https://" + env.Local(port) + "/metrics"
	for name, want := range map[string]struct {
		token string
		code  int
	}{
		"nobody":                {code: http.StatusUnauthorized},
		"who has a wrong token": {token: "x", code: http.StatusUnauthorized},
		"who may not":           {token: stranger.BearerToken, code: http.StatusForbidden},
	} {
		if code, body := get(t, c, url, want.token); code != want.code || strings.Contains(body, "fencedlease_") {
			t.Errorf("%s: want %d and no metrics, got %d %s", name, want.code, code, body)
		}
	}
	eventually(t, "the binding", func() error {
		code, body := get(t, c, url, scraper.BearerToken)
		if code != http.StatusOK {
			return fmt.Errorf("got %d %s", code, body)
		}
		for _, name := range []string{"fencedlease_reviews_total", "controller_runtime_reconcile_total"} {
			if !strings.Contains(body, "# TYPE "+name+" counter\n") {
				return fmt.Errorf("%s is not among the metrics", name)
			}
		}
		return nil
	})
	// A server of TLS answers plain text with an error or by closing the connection.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+env.Local(port)+"/metrics", nil)
	must(t, err)
	request.Header.Set("Authorization", "Bearer "+scraper.BearerToken)
	if response, err := http.DefaultClient.Do(request); err == nil {
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			t.Error("metrics are served without TLS")
		}
	}
}

var (
	update = flag.Lookup("update")
	// description reads what a registry knows of a metric before it has a value.
	description = regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{(.*)\}\}$`)
)

// testMetricsContract lists every metric with its type and labels: dashboards and alerts rely on them.
func (w *world) testMetricsContract(t *testing.T) {
	m := w.start(t)
	g := w.guard(t)
	must(t, g.write(t.Context(), "1"))

	types := map[string]string{}
	families, err := m.Registry.Gather()
	must(t, err)
	for _, family := range families {
		types[family.GetName()] = strings.ToLower(family.GetType().String())
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		m.Registry.Describe(descriptions)
	}()
	var lines []string
	for d := range descriptions {
		parts := description.FindStringSubmatch(d.String())
		if parts == nil {
			t.Fatalf("cannot read %s", d)
		}
		labels := strings.FieldsFunc(parts[2], func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(labels)
		if !strings.HasPrefix(parts[1], "fencedlease_") {
			t.Errorf("%s does not begin with the product's name", parts[1])
		}
		for _, label := range labels {
			// A label that names an object has as many values as there are objects.
			if slices.Contains([]string{"name", "namespace", "lease", "object", "holder", "user", "term", "generation"}, label) {
				t.Errorf("%s has the unbounded label %s", parts[1], label)
			}
		}
		lines = append(lines, fmt.Sprintf("%s %s {%s}\n", parts[1], types[parts[1]], strings.Join(labels, ",")))
	}
	slices.Sort(lines)
	got := strings.Join(lines, "")
	if update != nil && update.Value.String() == "true" {
		must(t, os.WriteFile("testdata/metrics.golden", []byte(got), 0o600))
	}
	want, err := os.ReadFile("testdata/metrics.golden")
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("metrics differ; if that is meant, run go test with -update (-want +got):\n%s", diff)
	}
	problems, err := testutil.GatherAndLint(m.Registry)
	must(t, err)
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}
