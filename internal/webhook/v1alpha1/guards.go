// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	api "github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
)

// maxNames bounds the names that one message lists.
const maxNames = 5

// checkGuard judges one guard by itself.
func (r review) checkGuard(f *findings, path *field.Path, index int) {
	guard := r.lease.Spec.Guards[index]
	checkSelector(f, path.Child("objectSelector"), guard.ObjectSelector)
	checkSelector(f, path.Child("namespaceSelector"), guard.NamespaceSelector)
	r.checkNamespaces(f, path, guard)
	r.checkGroups(f, path, guard)
	r.checkKinds(f, path, guard)
	r.checkSubresources(f, path, guard)
	checkSubjects(f, path.Child("subjects"), guard.Subjects, r.lease.Namespace)
}

// checkSelector refuses a selector that no label can be compared with.
func checkSelector(f *findings, path *field.Path, selector *metav1.LabelSelector) {
	errs := metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
	if len(errs) == 0 {
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			errs = append(errs, field.Invalid(path, selector, err.Error()))
		}
	}
	// The labels to match come from a map, whose order is not stable.
	slices.SortFunc(errs, func(a, b *field.Error) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Error(), b.Error()))
	})
	for _, err := range errs {
		err.Detail += ": correct the selector, or write {} to select everything"
		f.refuse(err)
	}
}

// reserved says why a namespace is never guarded; it returns the empty string if it can be.
func (r review) reserved(namespace string) string {
	switch namespace {
	case metav1.NamespaceSystem:
		return "the control plane and its add-ons"
	case r.managerNamespace:
		return "the FencedLease manager itself"
	default:
		return ""
	}
}

// checkNamespaces judges where a guard reaches.
func (r review) checkNamespaces(f *findings, path *field.Path, guard api.Guard) {
	if guard.NamespaceSelector == nil {
		if whose := r.reserved(r.lease.Namespace); whose != "" {
			f.refuse(field.Forbidden(path, fmt.Sprintf(
				"objects in the namespace %q cannot be guarded: %s must be able to write there while the webhook is down: move the FencedLease to another namespace, or set namespaceSelector to guard others",
				r.lease.Namespace, whose)))
		}
		return
	}
	names, finite := reachOf(guard.NamespaceSelector).names()
	allReserved := !slices.ContainsFunc(names, func(name string) bool { return r.reserved(name) == "" })
	if finite && allReserved {
		f.warnf(path.Child("namespaceSelector"), "selects no namespace that can be guarded (%s and the manager's namespace never are): select another one", metav1.NamespaceSystem)
	}
}

// unguardable says why no resource of a group can be guarded, if its name alone tells; else it returns the empty string.
func unguardable(group string) string {
	switch {
	case group == api.GroupName:
		return "FencedLeases cannot be guarded, as a holder must be able to renew while the webhook is down: remove this group"
	case group == "":
		return "the core group is built into Kubernetes and cannot be guarded, so that no guard keeps a cluster from starting: name the groups of custom resources"
	case strings.Contains(group, "*"):
		return "a guard must name its groups, so that none keeps a cluster from starting: name the groups of custom resources"
	default:
		return ""
	}
}

// refusal says why resources of a class cannot be guarded, empty if they can be.
func refusal(class guardkind.Class) string {
	switch class {
	case guardkind.CRD, guardkind.Missing:
		return ""
	case guardkind.Builtin:
		return "built into Kubernetes and cannot be guarded, so that no guard keeps a cluster from starting"
	case guardkind.Aggregated:
		return "served by an aggregated API server and cannot be guarded, as that server stores objects in its own way"
	default:
		return "no custom resource and cannot be guarded"
	}
}

// checkGroups refuses groups whose resources are no custom resources.
func (r review) checkGroups(f *findings, path *field.Path, guard api.Guard) {
	for j, group := range guard.APIGroups {
		path := path.Child("apiGroups").Index(j)
		if reason := unguardable(group); reason != "" {
			f.refuse(field.Invalid(path, group, reason))
			continue
		}
		var reasons []string
		names := map[string][]string{}
		for _, resource := range resourceNames(guard) {
			gr := schema.GroupResource{Group: group, Resource: resource}
			reason := refusal(r.answers.kinds[gr].Class)
			if reason == "" {
				continue
			}
			if names[reason] == nil {
				reasons = append(reasons, reason)
			}
			names[reason] = append(names[reason], gr.String())
		}
		for _, reason := range reasons {
			f.refuse(field.Invalid(path, group, list(names[reason])+" "+reason+": name groups and resources of CustomResourceDefinitions only"))
		}
	}
}

// checkKinds judges the custom resources of a guard: whether they are there, and whether the guard reaches them.
func (r review) checkKinds(f *findings, path *field.Path, guard api.Guard) {
	var missing, unreached []string
	for _, group := range guard.APIGroups {
		missing = append(missing, r.named(guard, group, guardkind.Missing)...)
		for _, name := range r.named(guard, group, guardkind.CRD) {
			gr := schema.ParseGroupResource(name)
			if guard.NamespaceSelector == nil && r.answers.kinds[gr].Scope == guardkind.ClusterScoped {
				unreached = append(unreached, name)
			}
		}
	}
	if len(missing) > 0 {
		f.warnf(path, "%s not installed: guarded from the moment the CustomResourceDefinition is there; check the spelling if it should be", list(missing))
	}
	if len(unreached) > 0 {
		f.refuse(field.Required(path.Child("namespaceSelector"), fmt.Sprintf(
			"%s cluster-scoped, and a guard without namespaceSelector reaches objects of its own namespace only: set `namespaceSelector: {}`, which needs the verb %s on %s",
			list(unreached), api.VerbGuardCluster, api.Resource.Resource)))
	}
}

// checkSubresources warns about served subresources through which a guarded object can be changed past the guard, and
// about those that nobody serves.
func (r review) checkSubresources(f *findings, path *field.Path, guard api.Guard) {
	path = path.Child("resources")
	for _, group := range guard.APIGroups {
		for _, name := range r.named(guard, group, guardkind.CRD) {
			gr := schema.ParseGroupResource(name)
			served := r.answers.kinds[gr].Subresources
			if !r.covered(guard, gr, "") {
				f.warnf(path, "%s itself is left open, only subresources of it are guarded: add %s, or %s/* for all", gr, gr.Resource, gr.Resource)
			}
			for _, sub := range served {
				if !r.covered(guard, gr, sub) {
					f.warnf(path, "%s/%s of %s is left open, stale writes to it are admitted: add %[1]s/%[2]s, or %[1]s/* for all", gr.Resource, sub, gr.Group)
				}
			}
			for _, resource := range guard.Resources {
				main, sub, _ := strings.Cut(resource, "/")
				if main == gr.Resource && sub != "" && sub != "*" && !slices.Contains(served, sub) {
					f.warnf(path, "%s/%s of %s is not served: it is guarded from the moment it is", gr.Resource, sub, gr.Group)
				}
			}
		}
	}
}

// covered reports whether a guard of the lease with the same reach names a subresource, or the main resource as the empty
// one.
func (r review) covered(guard api.Guard, gr schema.GroupResource, sub string) bool {
	return slices.ContainsFunc(r.lease.Spec.Guards, func(g api.Guard) bool {
		return g.Names(gr, sub) &&
			apiequality.Semantic.DeepEqual(g.NamespaceSelector, guard.NamespaceSelector) &&
			apiequality.Semantic.DeepEqual(g.ObjectSelector, guard.ObjectSelector)
	})
}

// named returns the resources of a group that a guard names and that are of a class, as resource.group.
func (r review) named(guard api.Guard, group string, class guardkind.Class) []string {
	var names []string
	for _, resource := range resourceNames(guard) {
		gr := schema.GroupResource{Group: group, Resource: resource}
		if kind, asked := r.answers.kinds[gr]; asked && kind.Class == class {
			names = append(names, gr.String())
		}
	}
	return names
}

// resourceNames returns the resources that a guard names, each once and without subresources.
func resourceNames(guard api.Guard) []string {
	var names []string
	for _, resource := range guard.Resources {
		name, _, _ := strings.Cut(resource, "/")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// list returns names as the beginning of a sentence, with its verb.
func list(names []string) string {
	if len(names) == 1 {
		return enumerate(names) + " is"
	}
	return enumerate(names) + " are"
}

// enumerate joins names, of which a message lists the first few.
func enumerate(names []string) string {
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}
