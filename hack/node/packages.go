// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
)

// packages are the Debian packages that the node needs, each with a file that shows that it is there.
var packages = []struct{ name, file string }{
	{"containerd", "/usr/bin/containerd"},
	{"runc", "/usr/sbin/runc"},
	{"containernetworking-plugins", cniPlugins + "/bridge"},
	{"iproute2", "/usr/sbin/ip"},
	{"nftables", "/usr/sbin/nft"},
	{"iptables", "/usr/sbin/iptables"},
	{"util-linux", "/usr/bin/nsenter"},
}

const cniPlugins = "/usr/lib/cni"

// needPackages returns an error that says what to do if something is missing. With install it installs it.
func needPackages(ctx context.Context, install bool) error {
	if os.Geteuid() != 0 {
		return errors.New("root is needed for namespaces, mounts and control groups: run this as root, or use the provider kind")
	}
	var missing []string
	for _, p := range packages {
		if _, err := os.Stat(p.file); err != nil {
			missing = append(missing, p.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	command := "apt-get install -y --no-install-recommends " + strings.Join(missing, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this is no Debian: the node needs what Debian 12 has as %s", strings.Join(missing, ", "))
	}
	if !install {
		return fmt.Errorf("packages are missing, install them by -install or by: %s", command)
	}
	say("installing %s", strings.Join(missing, ", "))
	return withoutStarts(startPolicy, func() error {
		for _, step := range []string{"apt-get update -qq", command + " -qq"} {
			cmd := exec.CommandContext(ctx, "sh", "-c", step)
			cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", step, err, out)
			}
		}
		return nil
	})
}

// startPolicy is the program that Debian's packages ask whether to start their services.
const startPolicy = "/usr/sbin/policy-rc.d"

// withoutStarts lets packages be installed without a start of their services: the node runs a containerd of its own. A policy that
// the machine has already stays.
func withoutStarts(policy string, install func() error) error {
	f, err := os.OpenFile(policy, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755) //nolint:gosec // packages run it
	if errors.Is(err, fs.ErrExist) {
		return install()
	}
	if err != nil {
		return fmt.Errorf("forbid starts: %w", err)
	}
	_, err = f.WriteString("#!/bin/sh\nexit 101\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = install()
	}
	return errors.Join(err, os.Remove(policy))
}
