// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
)

const (
	// nodeName is the name of the only node.
	nodeName = "fencedlease-node"
	// groupName is the control group, in every hierarchy, below which the cluster's processes are.
	groupName = "fencedlease-node"

	// Addresses exist in the cluster's network namespace only.
	nodeAddress    = "10.99.0.1"
	nodeNetwork    = "10.99.0.1/24"
	podNetwork     = "10.244.0.0/24"
	serviceNetwork = "10.96.0.0/16"
	serviceAddress = "10.96.0.1"
	apiServer      = "https://" + nodeAddress + ":6443"
	etcdServer     = "http://127.0.0.1:2379"

	pauseImage = "fencedlease.invalid/pause:1"
)

// place is the folder that holds all files of the cluster while it is up.
type place string

// thePlace returns the one folder of this user. It is below the cache, as the file system there holds large files and is not
// an overlay, on which containerd's snapshots would not work.
func thePlace() (place, error) {
	cache := os.Getenv("FENCEDLEASE_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, "fencedlease")
	}
	return place(filepath.Join(cache, "node-up")), nil
}

// file returns the path of a file or folder of the cluster.
func (p place) file(name ...string) string {
	return filepath.Join(append([]string{string(p)}, name...)...)
}

func (p place) kubeconfig() string { return p.file("admin.kubeconfig") }
func (p place) socket() string     { return "/run/containerd/containerd.sock" }

// write writes a file of the cluster, which nobody else may read: many are credentials.
func (p place) write(name string, data []byte) error {
	path := p.file(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
