// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of FencedLease.
const GroupName = "coordination.fencedlease.io"

var (
	// SchemeGroupVersion is the group and version of the types in this package. Generated clients refer to it by this
	// name.
	SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// Resource is the resource of FencedLease.
	Resource = SchemeGroupVersion.WithResource("fencedleases")

	// Kind is the kind of FencedLease.
	Kind = SchemeGroupVersion.WithKind("FencedLease")

	// SchemeBuilder registers the types of this package with a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the types of this package to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &FencedLease{}, &FencedLeaseList{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
