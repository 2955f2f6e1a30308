// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guardkind says what a resource that a guard names is: built into Kubernetes, a custom resource, served by an
// aggregated API server, or not there. Only custom resources can be guarded.
package guardkind

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,verbs=get;list;watch

// Class says who defines a resource.
type Class string

const (
	// Builtin is a resource of a group that Kubernetes itself defines.
	Builtin Class = "Builtin"
	// Own is a resource of the group of FencedLease.
	Own Class = "Own"
	// Aggregated is a resource of a group that an aggregated API server serves in at least one version.
	Aggregated Class = "Aggregated"
	// CRD is a custom resource.
	CRD Class = "CRD"
	// Missing is a resource that nobody defines.
	Missing Class = "Missing"
)

// Scope says whether objects have a namespace. It is empty for classes other than CRD.
type Scope string

const (
	// NamespaceScoped objects have a namespace.
	NamespaceScoped Scope = "Namespaced"
	// ClusterScoped objects have none.
	ClusterScoped Scope = "Cluster"
)

// Kind is what is known of a resource. All fields but Class are empty for classes other than CRD.
type Kind struct {
	Class Class
	Scope Scope
	// Kind is the name of the kind in objects.
	Kind string
	// Subresources are those that at least one served version has: of scale and status, in this order.
	Subresources []string
	// Versions are the served versions. The storage version comes first if it is served.
	Versions []string
}

// Classifier says what a resource is.
type Classifier interface {
	// Classify returns what the resource of a group is. resource is the plural name without a subresource.
	Classify(ctx context.Context, group, resource string) (Kind, error)
}

var (
	// CRDs is the kind of the objects that define custom resources.
	CRDs = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	// APIServices is the kind of the objects that delegate a group and version to an API server.
	APIServices = schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}
)

// Live classifies by what the API server says now.
type Live struct {
	reader client.Reader
}

var _ Classifier = Live{}

// NewLive returns a classifier that asks the reader each time. Give it one that does not read from a cache.
func NewLive(reader client.Reader) Live { return Live{reader} }

// Classify implements Classifier by at most two reads.
func (l Live) Classify(ctx context.Context, group, resource string) (Kind, error) {
	switch {
	case group == v1alpha1.GroupName:
		return Kind{Class: Own}, nil
	case builtin(group):
		return Kind{Class: Builtin}, nil
	}
	delegated, err := l.delegated(ctx, group)
	if err != nil {
		return Kind{}, err
	}
	if delegated {
		return Kind{Class: Aggregated}, nil
	}
	return l.custom(ctx, schema.GroupResource{Group: group, Resource: resource})
}

// builtin reports whether Kubernetes itself defines a group. Two groups of its extension servers are not in client-go.
func builtin(group string) bool {
	return group == CRDs.Group || group == APIServices.Group || clientgoscheme.Scheme.IsGroupRegistered(group)
}

// delegated reports whether an aggregated API server serves some version of a group.
func (l Live) delegated(ctx context.Context, group string) (bool, error) {
	services := &unstructured.UnstructuredList{}
	services.SetGroupVersionKind(APIServices.GroupVersion().WithKind(APIServices.Kind + "List"))
	// From the reader: live, a few dozen small objects.
	if err := l.reader.List(ctx, services); err != nil {
		return false, fmt.Errorf("list APIServices: %w", err)
	}
	return slices.ContainsFunc(services.Items, func(s unstructured.Unstructured) bool {
		serves, _, _ := unstructured.NestedString(s.Object, "spec", "group")
		service, _, _ := unstructured.NestedMap(s.Object, "spec", "service")
		return serves == group && service != nil
	}), nil
}

// definition is the part of a CustomResourceDefinition that matters here.
type definition struct {
	Spec struct {
		Scope string `json:"scope"`
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
		Versions []struct {
			Name         string `json:"name"`
			Served       bool   `json:"served"`
			Storage      bool   `json:"storage"`
			Subresources struct {
				Status *struct{} `json:"status"`
				Scale  *struct{} `json:"scale"`
			} `json:"subresources"`
		} `json:"versions"`
	} `json:"spec"`
}

// custom reads the definition of a custom resource, whose name is always that of its resource and group.
func (l Live) custom(ctx context.Context, gr schema.GroupResource) (Kind, error) {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(CRDs)
	// From the reader: live.
	if err := l.reader.Get(ctx, client.ObjectKey{Name: gr.String()}, crd); err != nil {
		if apierrors.IsNotFound(err) {
			return Kind{Class: Missing}, nil
		}
		return Kind{}, fmt.Errorf("get CustomResourceDefinition %s: %w", gr, err)
	}
	var d definition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(crd.Object, &d); err != nil {
		return Kind{}, fmt.Errorf("read CustomResourceDefinition %s: %w", gr, err)
	}
	return kindOf(d), nil
}

func kindOf(d definition) Kind {
	kind := Kind{Class: CRD, Scope: Scope(d.Spec.Scope), Kind: d.Spec.Names.Kind}
	status, scale := false, false
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		status = status || v.Subresources.Status != nil
		scale = scale || v.Subresources.Scale != nil
		if v.Storage {
			kind.Versions = slices.Insert(kind.Versions, 0, v.Name)
		} else {
			kind.Versions = append(kind.Versions, v.Name)
		}
	}
	if scale {
		kind.Subresources = append(kind.Subresources, "scale")
	}
	if status {
		kind.Subresources = append(kind.Subresources, "status")
	}
	return kind
}
