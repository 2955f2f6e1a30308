// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package manager_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// manifest writes a copy of dist/install.yaml without the webhook configuration for FencedLeases. The managers of tests
// are called by URL, for which they replace the Service in that one object, so that applying it again is a conflict here by
// design. Where they are called by the Service they own nothing of it but caBundle: the tests of internal/controller and
// test/manifests hold them to that.
func (w *world) manifest(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(w.cluster.ModuleRoot(), "dist", "install.yaml"))
	must(t, err)
	var kept []string
	documents := strings.Split(string(data), "\n---\n")
	for _, document := range documents {
		if !strings.Contains("\n"+document, "\nkind: ValidatingWebhookConfiguration\n") {
			kept = append(kept, document)
		}
	}
	if len(kept) != len(documents)-1 {
		t.Fatalf("want one webhook configuration in the manifest, there are %d", len(documents)-len(kept))
	}
	file := filepath.Join(w.cluster.Dir(), "install.yaml")
	must(t, os.WriteFile(file, []byte(strings.Join(kept, "\n---\n")), 0o600))
	return file
}

// testReapply applies the installation again and again, as people and GitOps tools do, by both ways of kubectl.
func (w *world) testReapply(t *testing.T) {
	w.start(t)
	file := w.manifest(t)
	writing := w.guard(t).keepWriting(t, 2)
	writing.more(t, 20)
	registered := w.registration(t)
	apply := func(args ...string) {
		t.Helper()
		if _, err := w.cluster.Kubectl(t.Context(), append([]string{"apply", "-f", file}, args...)...); err != nil {
			t.Error(err)
		}
	}
	for range 5 {
		apply()
		apply("--server-side")
		writing.more(t, 1)
	}
	// Some objects have a status that the API server writes some time after a change, so a comparison may have to wait.
	eventually(t, "a second server-side apply that changes nothing", func() error {
		before := w.identities(t, "-f", file)
		apply("--server-side")
		if diff := cmp.Diff(before, w.identities(t, "-f", file)); diff != "" {
			return fmt.Errorf("uid and resourceVersion (-before +after):\n%s", diff)
		}
		return nil
	})
	writing.more(t, 20)
	writing.mustNotHaveFailed(t)
	if diff := cmp.Diff(registered, w.registration(t)); diff != "" {
		t.Errorf("the registration was written anew (-want +got):\n%s", diff)
	}
}
