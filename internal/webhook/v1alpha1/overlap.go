// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	api "github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
)

// placed is a guard with the namespace of its lease.
type placed struct {
	namespace string
	guard     api.Guard
}

// checkOverlaps refuses guards that may guard an object which a lease of the same name in another namespace guards too:
// the marks of both would be one annotation, whose generations come from two histories. It names a few of the other leases.
func (r review) checkOverlaps(f *findings, guards *field.Path) {
	for i, guard := range r.lease.Spec.Guards {
		mine := placed{r.lease.Namespace, guard}
		named := 0
		for o := range r.answers.others {
			other := &r.answers.others[o]
			j, gr, meet := r.meeting(mine, other)
			if !meet {
				continue
			}
			f.refuse(field.Forbidden(guards.Index(i), fmt.Sprintf(
				"overlaps spec.guards[%d] of the FencedLease %q in the namespace %q: both may guard the same %s, and leases of one name share the annotation %s: rename one of the leases, or limit guards by a namespaceSelector on the label %s",
				j, other.Name, other.Namespace, gr, api.TokenKey(r.lease.Name), corev1.LabelMetadataName)))
			if named++; named == maxNames {
				break
			}
		}
	}
}

// meeting returns the first guard of another lease that may guard the same object as mine, with the object's resource.
func (r review) meeting(mine placed, other *api.FencedLease) (index int, gr schema.GroupResource, meet bool) {
	for j, guard := range other.Spec.Guards {
		if gr, meet := mayMeet(mine, placed{other.Namespace, guard}, r.scope); meet {
			return j, gr, true
		}
	}
	return 0, schema.GroupResource{}, false
}

// scope returns the scope of a guarded resource, empty if it is not known.
func (r review) scope(gr schema.GroupResource) guardkind.Scope { return r.answers.kinds[gr].Scope }

// mayMeet returns a resource of which two guards may guard the same object. It says no only where that is certain for all
// time: labels of objects and of namespaces change, so of all selectors only requirements on the label that holds a
// namespace's name count. Subresources count as their resource, as they belong to the object whose mark it is.
func mayMeet(a, b placed, scope func(schema.GroupResource) guardkind.Scope) (schema.GroupResource, bool) {
	for _, group := range a.guard.APIGroups {
		if !slices.Contains(b.guard.APIGroups, group) {
			continue
		}
		for _, name := range resourceNames(a.guard) {
			gr := schema.GroupResource{Group: group, Resource: name}
			if slices.Contains(resourceNames(b.guard), name) && sharePlace(a, b, scope(gr)) {
				return gr, true
			}
		}
	}
	return schema.GroupResource{}, false
}

// sharePlace reports whether two guards may reach a common namespace, or both the cluster scope.
func sharePlace(a, b placed, scope guardkind.Scope) bool {
	ownA, ownB := a.guard.NamespaceSelector == nil, b.guard.NamespaceSelector == nil
	switch {
	case ownA && ownB:
		return a.namespace == b.namespace
	case ownA:
		return scope != guardkind.ClusterScoped && reachOf(b.guard.NamespaceSelector).admits(a.namespace)
	case ownB:
		return scope != guardkind.ClusterScoped && reachOf(a.guard.NamespaceSelector).admits(b.namespace)
	case scope != guardkind.NamespaceScoped:
		// Guards with a namespaceSelector reach every cluster-scoped object, whatever they select.
		return true
	default:
		return reachOf(a.guard.NamespaceSelector).meets(reachOf(b.guard.NamespaceSelector))
	}
}

// reach is what a namespaceSelector says about the names of namespaces: its requirements on the label that the API server
// keeps equal to the name.
type reach []metav1.LabelSelectorRequirement

func reachOf(selector *metav1.LabelSelector) reach {
	var r reach
	if name, set := selector.MatchLabels[corev1.LabelMetadataName]; set {
		r = append(r, metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{name}})
	}
	for _, requirement := range selector.MatchExpressions {
		if requirement.Key == corev1.LabelMetadataName {
			r = append(r, requirement)
		}
	}
	return r
}

// admits reports whether nothing in the selector excludes a namespace by its name.
func (r reach) admits(namespace string) bool {
	for _, requirement := range r {
		switch requirement.Operator {
		case metav1.LabelSelectorOpIn:
			if !slices.Contains(requirement.Values, namespace) {
				return false
			}
		case metav1.LabelSelectorOpNotIn:
			if slices.Contains(requirement.Values, namespace) {
				return false
			}
		case metav1.LabelSelectorOpDoesNotExist:
			// Every namespace has the label.
			return false
		case metav1.LabelSelectorOpExists:
		default:
			// An unknown operator is refused elsewhere and proves nothing here.
		}
	}
	return true
}

// names returns the namespaces that are not excluded, if the selector lists them: finite is false if they cannot be listed.
func (r reach) names() (names []string, finite bool) {
	for _, requirement := range r {
		switch requirement.Operator {
		case metav1.LabelSelectorOpIn:
			names, finite = append(names, requirement.Values...), true
		case metav1.LabelSelectorOpDoesNotExist:
			finite = true
		default:
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !r.admits(name) }), finite
}

// meets reports whether both may admit a common namespace.
func (r reach) meets(other reach) bool {
	mine, finite := r.names()
	if finite {
		return slices.ContainsFunc(mine, other.admits)
	}
	theirs, finite := other.names()
	return !finite || slices.ContainsFunc(theirs, r.admits)
}
