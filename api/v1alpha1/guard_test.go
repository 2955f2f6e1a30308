// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAGuardNamesResources(t *testing.T) {
	t.Parallel()
	guard := &Guard{APIGroups: []string{"example.com", "example.org"}, Resources: []string{"reports", "pages/status", "widgets/*"}}
	for name, test := range map[string]struct {
		group, resource, subresource string
		want                         bool
	}{
		"a bare name":                          {"example.com", "reports", "", true},
		"a bare name leaves subresources open": {"example.com", "reports", "status", false},
		"a subresource":                        {"example.org", "pages", "status", true},
		"a subresource leaves the rest open":   {"example.org", "pages", "", false},
		"another subresource":                  {"example.org", "pages", "scale", false},
		"everything, the resource itself":      {"example.com", "widgets", "", true},
		"everything, a subresource":            {"example.com", "widgets", "scale", true},
		"another group":                        {"example.net", "reports", "", false},
		"another resource":                     {"example.com", "report", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := guard.Names(schema.GroupResource{Group: test.group, Resource: test.resource}, test.subresource); got != test.want {
				t.Errorf("want %t, got %t", test.want, got)
			}
		})
	}
}
