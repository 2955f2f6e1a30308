// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the API of FencedLease: a record of who leads, under which generation, and which custom
// resources accept writes of the current holder only.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package="../../pkg/client/applyconfiguration"
// +groupName=coordination.fencedlease.io
package v1alpha1
