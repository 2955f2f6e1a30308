// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// provider is what the specs need of a cluster beyond its API.
type provider interface {
	// pause stops all processes of a container by the freezer; resume lets them go on; kill ends them at once.
	pause(ctx context.Context, container string) error
	resume(ctx context.Context, container string) error
	kill(ctx context.Context, container string) error
	// signalAPIServer sends a signal to the API server. Something starts it again when it has ended.
	signalAPIServer(ctx context.Context, signal string) error
	// enforcesPolicies tells whether the network plugin enforces network policies.
	enforcesPolicies() bool
}

// newProvider returns the provider that hack/make/e2e.sh has chosen.
func newProvider() (provider, error) {
	switch name := os.Getenv("E2E_PROVIDER"); name {
	case "node":
		return nodeProvider{program: os.Getenv("E2E_NODE")}, nil
	case "kind":
		return kindProvider{tool: os.Getenv("CONTAINER_TOOL"), container: os.Getenv("KIND_CLUSTER") + "-control-plane"}, nil
	default:
		return nil, fmt.Errorf("E2E_PROVIDER is %q: run the specs by make test-e2e", name)
	}
}

func run(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// nodeProvider is the cluster of hack/node.
type nodeProvider struct{ program string }

func (p nodeProvider) pause(ctx context.Context, container string) error {
	return run(ctx, p.program, "ctr", "task", "pause", container)
}

func (p nodeProvider) resume(ctx context.Context, container string) error {
	return run(ctx, p.program, "ctr", "task", "resume", container)
}

func (p nodeProvider) kill(ctx context.Context, container string) error {
	return run(ctx, p.program, "ctr", "task", "kill", "-s", "SIGKILL", container)
}

func (p nodeProvider) signalAPIServer(ctx context.Context, signal string) error {
	return run(ctx, p.program, "kill", "kube-apiserver", signal)
}

// The plugin bridge knows no policies.
func (nodeProvider) enforcesPolicies() bool { return false }

// kindProvider is a kind cluster of one node.
type kindProvider struct{ tool, container string }

func (p kindProvider) onNode(ctx context.Context, args ...string) error {
	return run(ctx, p.tool, append([]string{"exec", p.container}, args...)...)
}

func (p kindProvider) pause(ctx context.Context, container string) error {
	return p.onNode(ctx, "ctr", "-n", "k8s.io", "task", "pause", container)
}

func (p kindProvider) resume(ctx context.Context, container string) error {
	return p.onNode(ctx, "ctr", "-n", "k8s.io", "task", "resume", container)
}

func (p kindProvider) kill(ctx context.Context, container string) error {
	return p.onNode(ctx, "ctr", "-n", "k8s.io", "task", "kill", "-s", "SIGKILL", container)
}

func (p kindProvider) signalAPIServer(ctx context.Context, signal string) error {
	return p.onNode(ctx, "sh", "-c", `kill -s "$0" "$(pidof kube-apiserver)"`, signal)
}

// kind's own plugin enforces policies since v0.24.
func (kindProvider) enforcesPolicies() bool { return true }
