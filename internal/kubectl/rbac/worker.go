// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/guarded"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

// resource is a guarded resource or one of its subresources.
type resource struct {
	schema.GroupResource
	subresource string
}

// String names the resource as rules do.
func (r resource) String() string {
	if r.subresource == "" {
		return r.Resource
	}
	return r.Resource + "/" + r.subresource
}

const (
	subresourceStatus = "status"
	subresourceScale  = "scale"
)

// worker is whose roles are printed.
type worker struct {
	lease *v1alpha1.FencedLease
	// namespace and serviceAccount are the worker's own.
	namespace, serviceAccount string
	carrier, elector          string
	verbs                     []string
	// served are the verbs that the API server serves. Kinds that are missing are not installed.
	served map[resource][]string
}

// document is a role with its binding, and what it is for.
type document struct {
	comment string
	// namespace is that of the Role; empty stands for a ClusterRole.
	namespace string
	name      string
	rules     []rbacv1.PolicyRule
}

// documents returns the roles that the worker needs, none with a rule too many.
func (w worker) documents() []document {
	lease := w.lease
	own := document{
		comment:   "To lead by FencedLease " + lease.Name + ", never to change what it guards, and to write guarded objects of its namespace.",
		namespace: lease.Namespace, name: lease.Name + "-" + w.serviceAccount,
		rules: append(w.leaseRules(), w.guardedRules(false)...),
	}
	if w.elector == electorNone {
		own.comment = "To write what FencedLease " + lease.Name + " guards in its namespace, with tokens that the worker is handed."
	}
	wide := document{
		comment: "To write guarded objects of other namespaces, and cluster-scoped ones.",
		name:    "fencedlease-guarded-" + lease.Namespace + "-" + own.name, rules: w.guardedRules(true),
	}
	carrierRole := document{comment: "To request tokens of its own service account for its terms.", namespace: w.namespace, name: own.name + "-carrier"}
	carrierClusterRole := document{
		comment: "To carry tokens with requests. Extras of users belong to no namespace.",
		name:    "fencedlease-token-" + lease.Namespace + "-" + own.name,
	}
	switch w.carrier {
	case carrierRequest:
		rules := fenced.ServiceAccountRules(w.serviceAccount, lease.Name)
		carrierRole.comment = "To carry tokens with requests: the worker may impersonate itself, and nobody else."
		carrierRole.rules, carrierClusterRole.rules = rules.Role, rules.ClusterRole
	case carrierCredential:
		carrierRole.rules = []rbacv1.PolicyRule{{
			APIGroups: []string{corev1.GroupName}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{w.serviceAccount}, Verbs: []string{"create"},
		}}
	}
	return slices.DeleteFunc([]document{own, wide, carrierRole, carrierClusterRole}, func(d document) bool { return len(d.rules) == 0 })
}

// leaseRules let the worker acquire, renew and release the lease.
func (w worker) leaseRules() []rbacv1.PolicyRule {
	names := []string{w.lease.Name}
	read := []string{"get", "watch"} // API servers that are supported send the first state with the watch
	switch w.elector {
	case electorNone:
		return nil
	case electorResourceLock:
		read = []string{"get"}
	}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{v1alpha1.Resource.Resource}, ResourceNames: names, Verbs: read},
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{v1alpha1.Resource.Resource + "/status"}, ResourceNames: names, Verbs: []string{"patch"}},
	}
}

// guardedRules let the worker write what the guards of its namespace name, or what those name that reach further.
func (w worker) guardedRules(wide bool) []rbacv1.PolicyRule {
	verbs := map[resource][]string{}
	for _, g := range w.lease.Spec.Guards {
		if (g.NamespaceSelector != nil) != wide {
			continue
		}
		for _, kind := range guarded.Kinds(g) {
			for _, subresource := range []string{"", subresourceStatus, subresourceScale} {
				r := resource{kind, subresource}
				if g.Names(kind, subresource) {
					if allowed := w.allowed(r); len(allowed) > 0 {
						verbs[r] = allowed
					}
				}
			}
		}
	}
	resources := slices.SortedFunc(maps.Keys(verbs), func(a, b resource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.subresource, b.subresource))
	})
	var rules []rbacv1.PolicyRule
	for _, r := range resources {
		last := len(rules) - 1
		if last >= 0 && rules[last].APIGroups[0] == r.Group && slices.Equal(rules[last].Verbs, verbs[r]) {
			rules[last].Resources = append(rules[last].Resources, r.String())
			continue
		}
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.String()}, Verbs: verbs[r]})
	}
	return rules
}

// allowed are the verbs that the worker is to have on a resource: those it asks for, as far as they are served and its
// tokens can travel with them.
func (w worker) allowed(r resource) []string {
	asked := w.verbs
	switch {
	case r.subresource == subresourceScale && w.carrier == carrierAnnotation:
		return nil // a scale shows no annotations
	case r.subresource == "" && w.carrier == carrierAnnotation && slices.Contains(asked, "delete") && !slices.Contains(asked, "patch"):
		asked = append(slices.Clone(asked), "patch") // a delete by annotation begins with a patch that states the intent
	}
	served, known := w.served[r]
	if !known {
		if _, installed := w.served[resource{GroupResource: r.GroupResource}]; installed {
			return nil
		}
		// Nothing is known of a kind that is not installed.
		if served = knownVerbs; r.subresource != "" {
			served = []string{"get", "update", "patch"}
		}
	}
	return slices.DeleteFunc(slices.Clone(asked), func(verb string) bool { return !slices.Contains(served, verb) })
}

// missing are the guarded kinds that are not installed.
func (w worker) missing() []string {
	var missing []string
	for _, g := range w.lease.Spec.Guards {
		for _, kind := range guarded.Kinds(g) {
			if _, installed := w.served[resource{GroupResource: kind}]; !installed && !slices.Contains(missing, kind.String()) {
				missing = append(missing, kind.String())
			}
		}
	}
	return missing
}
