// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package product

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fencedlease/fencedlease/test/env"
)

// Build builds the manager's binary from the tree into the cluster's folder, and returns its path.
func Build(ctx context.Context, cluster *env.Environment) (string, error) {
	binary := filepath.Join(cluster.Dir(), "manager")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, "./cmd/manager")
	build.Dir = cluster.ModuleRoot()
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the manager: %w\n%s", err, out)
	}
	return binary, nil
}

// Process is a replica of the manager as a process of its own, which can be killed and started again.
type Process struct {
	*env.Program
	// Port is where its webhook listens.
	Port int

	name     string
	probeURL string
}

// NewProcess returns a replica that is not started yet and calls the API server by apiURL. API servers reach the webhook of
// all replicas by webhookURL.
func NewProcess(ctx context.Context, cluster *env.Environment, name, binary, apiURL, webhookURL string) (*Process, error) {
	config, err := cluster.ServiceAccount(ctx, Namespace, ServiceAccount)
	if err != nil {
		return nil, err
	}
	config.Host = apiURL
	kubeconfig, err := cluster.WriteKubeconfig(name, config)
	if err != nil {
		return nil, err
	}
	port, err := cluster.Port()
	if err != nil {
		return nil, err
	}
	probes, err := cluster.Port()
	if err != nil {
		return nil, err
	}
	return &Process{
		name: name, Port: port, probeURL: "http://" + env.Local(probes),
		Program: cluster.NewProgram(name, binary, append(os.Environ(), "KUBECONFIG="+kubeconfig),
			"--namespace="+Namespace, "--leader-elect", "--drain-delay=0s",
			"--webhook-host=127.0.0.1", "--webhook-port="+strconv.Itoa(port), "--webhook-url="+webhookURL,
			"--health-probe-bind-address="+env.Local(probes)),
	}, nil
}

// Run starts the process, also again, and returns when it is ready.
func (p *Process) Run(ctx context.Context) error {
	if err := p.Start(); err != nil {
		return err
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.Ended():
			return false, fmt.Errorf("it has ended, see %s", p.LogPath())
		default:
		}
		last = ready(ctx, p.probeURL)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", p.name, errors.Join(err, last))
	}
	return nil
}
