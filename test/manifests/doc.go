// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests tests what users install. Tests without a build tag read dist/install.yaml; those with the tag
// integration build the kustomizations with the real kubectl and apply them to a real API server.
package manifests
