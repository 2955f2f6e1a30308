// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
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
	for _, step := range []string{"apt-get update -qq", command + " -qq"} {
		cmd := exec.CommandContext(ctx, "sh", "-c", step)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", step, err, out)
		}
	}
	return nil
}
