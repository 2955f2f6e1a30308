// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

func TestRules(t *testing.T) {
	impersonate := []string{"impersonate"}
	extras := rbacv1.PolicyRule{
		APIGroups: []string{"authentication.k8s.io"}, Verbs: impersonate,
		Resources: []string{"userextras/token.fencedlease.io/one", "userextras/token.fencedlease.io/two"},
	}
	want := fenced.Rules{
		Role:        []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{"worker"}, Verbs: impersonate}},
		ClusterRole: []rbacv1.PolicyRule{extras},
	}
	if diff := cmp.Diff(want, fenced.ServiceAccountRules("worker", "one", "two")); diff != "" {
		t.Errorf("service account, -want +got:\n%s", diff)
	}
	want = fenced.Rules{ClusterRole: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"users"}, ResourceNames: []string{"alice"}, Verbs: impersonate},
		{APIGroups: []string{""}, Resources: []string{"groups"}, ResourceNames: []string{"writers"}, Verbs: impersonate},
		extras,
	}}
	if diff := cmp.Diff(want, fenced.UserRules("alice", []string{"writers", "system:authenticated"}, "one", "two")); diff != "" {
		t.Errorf("user, -want +got:\n%s", diff)
	}
}
