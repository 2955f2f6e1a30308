// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Node runs a Kubernetes cluster of one real node on this machine: etcd, API server, controller manager, scheduler, containerd,
// kubelet and kube-proxy, from pinned Go modules and Debian packages, without a registry and without a container engine.
//
// Everything runs in PID, mount and network namespaces of its own, below one process. When that process ends, the kernel ends
// all others and takes their mounts, network interfaces and rules along, whatever state they were in. What then remains is one
// folder and the control groups of one name; the keeper, a process outside of the namespaces, removes them, and if it was
// killed, the next up or down does. Nothing inside can reach the network of the machine.
//
// It needs Linux, root, and the Debian packages that packages.go names. It is a module of its own, which also pins the sources
// of the binaries that it runs.
package main
