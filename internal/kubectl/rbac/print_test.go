// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/clitest"
)

func TestRolesArePrinted(t *testing.T) {
	reports := schema.GroupResource{Group: "example.com", Resource: "reports"}
	all := []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	sub := []string{"get", "patch", "update"}
	served := map[resource][]string{{reports, ""}: all, {reports, "status"}: sub, {reports, "scale"}: sub}
	bare := clitest.Guarded(v1alpha1.Guard{APIGroups: []string{"example.com"}, Resources: []string{"reports", "reports/status"}})
	wide := clitest.Guarded(
		v1alpha1.Guard{APIGroups: []string{"example.com"}, Resources: []string{"reports/*"}},
		v1alpha1.Guard{APIGroups: []string{"example.org"}, Resources: []string{"plans/*"}, NamespaceSelector: &metav1.LabelSelector{}},
	)
	for name, w := range map[string]worker{
		"request":                     {lease: clitest.Lease(), carrier: carrierRequest},
		"annotation":                  {lease: clitest.Lease(), carrier: carrierAnnotation},
		"annotation, only deletes":    {lease: clitest.Lease(bare), carrier: carrierAnnotation, verbs: []string{"delete"}},
		"credential":                  {lease: clitest.Lease(bare), carrier: carrierCredential, verbs: []string{"get", "patch"}},
		"resourcelock":                {lease: clitest.Lease(clitest.Guarded()), carrier: carrierAnnotation, elector: electorResourceLock},
		"handed tokens":               {lease: clitest.Lease(bare), carrier: carrierRequest, elector: electorNone, namespace: "jobs"},
		"wide, kind is not installed": {lease: clitest.Lease(wide), carrier: carrierRequest, verbs: []string{"patch"}},
	} {
		t.Run(name, func(t *testing.T) {
			w.serviceAccount, w.served = "worker", served
			if w.namespace == "" {
				w.namespace = "reports"
			}
			if w.elector == "" {
				w.elector = electorLeader
			}
			if w.verbs == nil {
				w.verbs = defaultVerbs
			}
			var out strings.Builder
			if err := w.print(&out); err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, name, out.String())
		})
	}
}
