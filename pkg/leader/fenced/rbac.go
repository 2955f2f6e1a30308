// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

const (
	verbImpersonate         = "impersonate"
	resourceUsers           = "users"
	resourceGroups          = "groups"
	resourceServiceAccounts = "serviceaccounts"
	resourceUserExtras      = "userextras"

	serviceAccountPrefix = "system:serviceaccount:"
)

// Rules are the rights that a client of Wrap needs beyond those of its requests: to impersonate nobody but itself, and to
// add nothing but the tokens of some leases.
type Rules struct {
	// Role are the rules of a Role in the namespace of the service account; none for other users.
	Role []rbacv1.PolicyRule
	// ClusterRole are the rules of a ClusterRole: users, groups and extra keys belong to no namespace.
	ClusterRole []rbacv1.PolicyRule
}

// ServiceAccountRules returns what a service account needs to carry the tokens of leases of the given names with its
// requests. Its groups follow from its name and need no rule.
func ServiceAccountRules(serviceAccount string, leases ...string) Rules {
	return Rules{
		Role:        []rbacv1.PolicyRule{impersonate(corev1.GroupName, resourceServiceAccounts, serviceAccount)},
		ClusterRole: extraRules(leases),
	}
}

// UserRules returns what a user who is no service account needs to carry the tokens of leases of the given names with
// requests. The groups are those that requests are to keep; system:authenticated is always kept and needs no rule.
func UserRules(user string, groups []string, leases ...string) Rules {
	rules := Rules{ClusterRole: []rbacv1.PolicyRule{impersonate(corev1.GroupName, resourceUsers, user)}}
	if groups := namedGroups(groups); len(groups) > 0 {
		rules.ClusterRole = append(rules.ClusterRole, impersonate(corev1.GroupName, resourceGroups, groups...))
	}
	rules.ClusterRole = append(rules.ClusterRole, extraRules(leases)...)
	return rules
}

// extraRules leave the names open: these are the tokens, which change.
func extraRules(leases []string) []rbacv1.PolicyRule {
	if len(leases) == 0 {
		return nil
	}
	rule := impersonate(authenticationv1.GroupName, "")
	rule.Resources = nil
	for _, lease := range leases {
		rule.Resources = append(rule.Resources, extraResource(lease))
	}
	return []rbacv1.PolicyRule{rule}
}

// extraResource is the key of a token as authorizers name it.
func extraResource(lease string) string { return resourceUserExtras + "/" + v1alpha1.TokenKey(lease) }

func impersonate(group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{verbImpersonate}}
}

// parseServiceAccount returns namespace and name of a service account from its user name.
func parseServiceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, serviceAccountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != ""
}
