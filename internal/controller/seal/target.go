// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// Target is a guarded resource in one namespace, or wherever its matchers reach.
type Target struct {
	Resource schema.GroupVersionResource
	// Namespace is the only one, or empty for all namespaces and for cluster-scoped objects.
	Namespace string
	// Except are namespaces that are never guarded.
	Except []string
	// Matchers are the guards: an object is guarded if one of them matches.
	Matchers []Matcher
}

// Matcher is what one guard selects of a target.
type Matcher struct {
	// Objects selects by the labels of objects, nil selects all.
	Objects labels.Selector
	// Namespaces selects by the labels of namespaces, nil selects all. Cluster-scoped objects are in none and always match.
	Namespaces labels.Selector
}

// selective reports whether some guard of the target depends on the labels of namespaces.
func (t Target) selective() bool {
	return slices.ContainsFunc(t.Matchers, func(m Matcher) bool { return m.Namespaces != nil })
}

// reaches reports whether some guard selects a namespace with these labels.
func (t Target) reaches(name string, ls labels.Set) bool {
	return !slices.Contains(t.Except, name) && slices.ContainsFunc(t.Matchers, func(m Matcher) bool {
		return m.Namespaces == nil || m.Namespaces.Matches(ls)
	})
}

// matches reports whether the object is guarded. namespace returns the labels of a namespace as they were last seen.
func (t Target) matches(object *metav1.PartialObjectMetadata, namespace func(name string) labels.Set) bool {
	if slices.Contains(t.Except, object.Namespace) && object.Namespace != "" {
		return false
	}
	return slices.ContainsFunc(t.Matchers, func(m Matcher) bool {
		return (m.Objects == nil || m.Objects.Matches(labels.Set(object.Labels))) &&
			(m.Namespaces == nil || object.Namespace == "" || m.Namespaces.Matches(namespace(object.Namespace)))
	})
}

// listed is the selector by which a list may leave objects out. With several guards they are looked at one by one.
func (t Target) listed() string {
	if len(t.Matchers) == 1 && t.Matchers[0].Objects != nil {
		return t.Matchers[0].Objects.String()
	}
	return ""
}

// in returns the client for a namespace, or for all of them.
func (t Target) in(objects metadata.Interface, namespace string) metadata.ResourceInterface {
	if namespace == "" {
		return objects.Resource(t.Resource)
	}
	return objects.Resource(t.Resource).Namespace(namespace)
}
