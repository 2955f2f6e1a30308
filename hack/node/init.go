// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// initialize is the first process of the cluster's namespaces: it makes mounts and network, then starts the rest and starts
// again what ends. It never returns in order; its end is the end of all.
func initialize(p place) error {
	if err := take(p, append(slices.Clone(foundations), step{"make certificates", writePKI}, step{"write configuration", writeConfiguration})); err != nil {
		return err
	}
	all, err := daemons(p)
	if err != nil {
		return err
	}
	return supervise(p, all)
}

// covered are the folders that the node's programs write to wherever they are told to keep their files.
var covered = []string{"/var/lib", "/var/log", "/opt", "/etc", "/usr/libexec"}

// makeMounts covers all folders of the machine that would be written to. None of these mounts is seen outside.
func makeMounts(p place) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separate mounts: %w", err)
	}
	for _, folder := range covered {
		if _, err := os.Stat(folder); err != nil {
			continue
		}
		upper, work := p.file("over", folder, "upper"), p.file("over", folder, "work")
		for _, made := range []string{upper, work} {
			if err := os.MkdirAll(made, 0o755); err != nil {
				return err
			}
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", folder, upper, work)
		if err := syscall.Mount("overlay", folder, "overlay", 0, options); err != nil {
			return fmt.Errorf("cover %s: %w", folder, err)
		}
	}
	run, err := filepath.EvalSymlinks("/run")
	if err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", run, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("cover %s: %w", run, err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// Inside, mounts propagate as on any node.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return nil
}

// makeNetwork makes the node's network: an address on a bridge, which a pair of virtual cables gives a carrier, and a default
// route that leads nowhere.
func makeNetwork(place) error {
	for _, line := range []string{
		"link set lo up",
		"link add kn0 type bridge",
		"link add kn1 type veth peer name kn2",
		"link set kn1 master kn0",
		"link set kn1 up",
		"link set kn2 up",
		"addr add " + nodeNetwork + " dev kn0",
		"link set kn0 up",
		"route add default dev kn0",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}
