// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

func protectionText(t interface {
	Helper()
	Fatalf(string, ...any)
}, in Input) string {
	t.Helper()
	var all []string
	for _, w := range protectionObjects(BuildProtection(in)) {
		out, err := yaml.Marshal(w.object)
		if err != nil {
			t.Fatalf("write %s: %v", w.kind, err)
		}
		all = append(all, "# "+w.kind+"\n"+string(out))
	}
	return strings.Join(all, "---\n")
}

func TestProtectionIsAsInTheGoldenFile(t *testing.T) {
	t.Parallel()
	nobody := testInput(lease("reports", "bare"))
	nobody.Sealer = ""
	for name, in := range map[string]Input{
		"protection without guards and without a user": nobody,
		"protection of guarded kinds": testInput(
			lease("team-a", "writer", own("reports/*", "jobs")),
			lease("team-b", "it's", own("reports/status"), own("unknown")),
			lease("team-c", "third", own("reports")),
			lease("team-d", "fourth", own("reports"), wide(&metav1.LabelSelector{}, "globes")),
			audit(lease("team-e", "trial", own("stats", "others"), wide(&metav1.LabelSelector{}, "globes"))),
			// What is not installed protects nothing: the aggregated one, and the cluster-scoped one without a selector.
			lease("team-f", "hopeful", own("stats"), own("globes")),
		),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "_")+".yaml")
			got := protectionText(t, in)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("protection (-want +got):\n%s", diff)
			}
		})
	}
}

// The protection depends on what is guarded, and on nothing that changes with a renewal or a rotation of certificates.
func TestPropertyTheProtectionNamesEveryKindThatIsEnforced(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		leases := drawLeases(t)
		in := testInput(leases...)
		want := protectionText(t, in)
		in.Bundle, in.MinVersion, in.Endpoint = []byte("others"), "4712", Endpoint{URL: "https://127.0.0.1:9443"}
		slices.Reverse(in.Leases)
		if diff := cmp.Diff(want, protectionText(t, in)); diff != "" {
			t.Fatalf("protection (-before +after):\n%s", diff)
		}

		protected := map[string]bool{}
		for _, g := range resolve(in).placed {
			if !g.audit {
				protected[g.GroupResource.String()] = true
			}
		}
		names := guardedDefinitions(in)
		if diff := cmp.Diff(sortedKeys(protected), sortedKeys(names)); diff != "" {
			t.Fatalf("protected definitions (-guarded +named):\n%s", diff)
		}
		for name, text := range names {
			if strings.HasSuffix(name, "."+v1alpha1.GroupName) || !strings.HasPrefix(text, "FencedLease") {
				t.Fatalf("%s is guarded by %q", name, text)
			}
		}
	})
}

func TestARefusalNamesAFewLeases(t *testing.T) {
	t.Parallel()
	for want, names := range map[string][]string{
		"FencedLease a/x":                       {"a/x"},
		"FencedLeases a/x, b/x":                 {"a/x", "b/x"},
		"FencedLeases a/x, b/x, c/x":            {"a/x", "b/x", "c/x"},
		"FencedLeases a/x, b/x, c/x and 2 more": {"a/x", "b/x", "c/x", "d/x", "e/x"},
	} {
		if got := enumerate("FencedLease", names); got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	}
}
