// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Image writes the container image of a program, the manager unless told otherwise, as an archive, from static binaries
// alone: no container engine and no base image is needed, and the same binaries give the same digest. Container runtimes
// read the archive as it is (ctr images import, docker load, podman load, kind load image-archive).
//
// It is a module of its own, so that what it needs is no dependency of the product.
package main
