// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
)

// ProblemReason says why a guard is not installed as it is written. The values are a closed set: they label a metric.
type ProblemReason string

const (
	// ProblemBuiltin is a resource of a group that Kubernetes itself defines.
	ProblemBuiltin ProblemReason = "Builtin"
	// ProblemAggregated is a resource that an aggregated API server stores.
	ProblemAggregated ProblemReason = "Aggregated"
	// ProblemOwnGroup is a resource of the group of FencedLease.
	ProblemOwnGroup ProblemReason = "OwnGroup"
	// ProblemProtectedNamespace is a guard of a lease in kube-system or in the manager's namespace for that namespace.
	ProblemProtectedNamespace ProblemReason = "ProtectedNamespace"
	// ProblemClusterScoped is a guard without a namespaceSelector for a cluster-scoped resource.
	ProblemClusterScoped ProblemReason = "ClusterScoped"
	// ProblemInvalidSelector is a namespaceSelector that the API server would refuse, and with it all other guards.
	ProblemInvalidSelector ProblemReason = "InvalidSelector"
	// ProblemMissing is a resource that is not installed. It is registered all the same, and guarded once it is.
	ProblemMissing ProblemReason = "Missing"
)

// ProblemReasons returns all reasons.
func ProblemReasons() []ProblemReason {
	return []ProblemReason{
		ProblemBuiltin, ProblemAggregated, ProblemOwnGroup, ProblemProtectedNamespace, ProblemClusterScoped,
		ProblemInvalidSelector, ProblemMissing,
	}
}

// Problem is a resource of a guard that is not installed as it is written.
type Problem struct {
	// Guard is the index of the guard in the lease's spec.
	Guard    int
	Resource schema.GroupResource
	Reason   ProblemReason
	// Message says what is wrong and what to do.
	Message string
}

const (
	subresourceStatus = "status"
	subresourceScale  = "scale"
)

// target is what one webhook entry can call for: a resource itself, or one subresource of it.
type target struct {
	schema.GroupResource
	// subresource is empty for the resource itself.
	subresource string
}

// rule returns the target as rules name it.
func (t target) rule() string {
	if t.subresource == "" {
		return t.Resource
	}
	return t.Resource + "/" + t.subresource
}

func (t target) compare(o target) int {
	return cmp.Or(cmp.Compare(t.Group, o.Group), cmp.Compare(t.Resource, o.Resource), cmp.Compare(t.subresource, o.subresource))
}

// placed is an installable guard for one target: in one namespace, or where a selector reaches.
type placed struct {
	target
	// lease is the name of the guarding FencedLease, home its namespace; audit says that it refuses nothing.
	lease, home string
	audit       bool
	// history is how many operations of the lease an object records.
	history int32
	// namespace is the only guarded one, or empty if the guard is wide.
	namespace string
	// selector is that of a wide guard, in its canonical form.
	selector *metav1.LabelSelector
}

// resolution is what can be installed, and what cannot and why.
type resolution struct {
	placed   []placed
	problems map[types.UID][]Problem
}

// protectedNamespaces are never guarded, so that a cluster can start, and the manager in it.
func protectedNamespaces(managerNamespace string) []string {
	names := []string{metav1.NamespaceSystem, managerNamespace}
	slices.Sort(names)
	return slices.Compact(names)
}

// resolve sorts out which guards can be installed.
func resolve(in Input) resolution {
	r := resolution{problems: map[types.UID][]Problem{}}
	for i := range in.Leases {
		lease := &in.Leases[i]
		for index := range lease.Spec.Guards {
			placed, problems := resolveGuard(in, lease, index)
			r.placed = append(r.placed, placed...)
			if len(problems) > 0 {
				r.problems[lease.UID] = append(r.problems[lease.UID], problems...)
			}
		}
	}
	return r
}

func resolveGuard(in Input, lease *v1alpha1.FencedLease, index int) (installable []placed, problems []Problem) {
	guard := &lease.Spec.Guards[index]
	for _, gr := range guardedResources(guard) {
		problem := func(reason ProblemReason, format string, args ...any) {
			problems = append(problems, Problem{Guard: index, Resource: gr, Reason: reason, Message: fmt.Sprintf(format, args...)})
		}
		kind, known := in.Kinds[gr]
		if !known {
			kind.Class = guardkind.Missing
		}
		switch {
		case gr.Group == v1alpha1.GroupName || kind.Class == guardkind.Own:
			problem(ProblemOwnGroup, "%s cannot be guarded, holders must be able to renew while the webhook is down: remove it", gr)
			continue
		case kind.Class == guardkind.Builtin:
			problem(ProblemBuiltin, "%s is built into Kubernetes and cannot be guarded: remove it", gr)
			continue
		case kind.Class == guardkind.Aggregated:
			problem(ProblemAggregated, "%s is served by an aggregated API server and cannot be guarded: remove it", gr)
			continue
		case guard.NamespaceSelector == nil && slices.Contains(protectedNamespaces(in.Namespace), lease.Namespace):
			problem(ProblemProtectedNamespace, "objects in the namespace %s cannot be guarded: move the lease to another namespace", lease.Namespace)
			continue
		case guard.NamespaceSelector == nil && kind.Scope == guardkind.ClusterScoped:
			problem(ProblemClusterScoped, "%s is cluster-scoped and the guard reaches its own namespace only: set namespaceSelector", gr)
			continue
		}
		where := placed{lease: lease.Name, home: lease.Namespace, audit: lease.Spec.Enforcement == v1alpha1.EnforcementAudit, namespace: lease.Namespace,
			history: ptr.Deref(guard.OperationHistoryLimit, defaultHistory)}
		if guard.NamespaceSelector != nil {
			if _, err := metav1.LabelSelectorAsSelector(guard.NamespaceSelector); err != nil {
				problem(ProblemInvalidSelector, "the namespaceSelector for %s is not valid, correct it: %v", gr, err)
				continue
			}
			where.namespace, where.selector = "", canonicalSelector(guard.NamespaceSelector)
		}
		if kind.Class == guardkind.Missing {
			problem(ProblemMissing, "%s is not installed: it is guarded from the moment its CustomResourceDefinition is", gr)
		}
		for _, subresource := range guardedSubresources(guard, gr.Resource) {
			where.target = target{gr, subresource}
			installable = append(installable, where)
		}
	}
	return installable, problems
}

// guardedResources returns the resources that a guard names, without subresources, sorted.
func guardedResources(guard *v1alpha1.Guard) []schema.GroupResource {
	var resources []schema.GroupResource
	for _, group := range guard.APIGroups {
		for _, name := range guard.Resources {
			resource, _, _ := strings.Cut(name, "/")
			resources = append(resources, schema.GroupResource{Group: group, Resource: resource})
		}
	}
	slices.SortFunc(resources, func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return slices.Compact(resources)
}

// guardedSubresources returns what a guard names of a resource: the empty string for the resource itself, and
// subresources. All subresources that a custom resource can have are meant by *, served or not, so that one that is
// served later is guarded from the beginning.
func guardedSubresources(guard *v1alpha1.Guard, resource string) []string {
	var subresources []string
	for _, name := range guard.Resources {
		main, subresource, _ := strings.Cut(name, "/")
		switch {
		case main != resource:
		case subresource == "*":
			subresources = append(subresources, "", subresourceScale, subresourceStatus)
		default:
			subresources = append(subresources, subresource)
		}
	}
	slices.Sort(subresources)
	return slices.Compact(subresources)
}

// canonicalSelector returns an equal selector in which everything has one order.
func canonicalSelector(selector *metav1.LabelSelector) *metav1.LabelSelector {
	c := selector.DeepCopy()
	for i := range c.MatchExpressions {
		slices.Sort(c.MatchExpressions[i].Values)
		c.MatchExpressions[i].Values = slices.Compact(c.MatchExpressions[i].Values)
	}
	slices.SortFunc(c.MatchExpressions, func(a, b metav1.LabelSelectorRequirement) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Operator, b.Operator), slices.Compare(a.Values, b.Values))
	})
	return c
}
