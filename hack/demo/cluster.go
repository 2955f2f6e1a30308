// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/test/env"
)

const (
	// systemNamespace and managerAccount are those of config/default.
	systemNamespace = "fencedlease-system"
	managerAccount  = "fencedlease-controller-manager"

	managerGrace = 3 * time.Second
	// readyTime bounds the waits for the manager and for the guards.
	readyTime = time.Minute
	pollEvery = 100 * time.Millisecond
)

// cluster is the control plane, with what the demo runs on it.
type cluster struct {
	options    options
	dir        string // everything that the demo writes
	env        *env.Environment
	client     client.Client
	kubeconfig string // the administrator's
	kubectl    string
	worker     string
	manager    *child
	children   []*child
}

// newCluster makes the folder of the demo. The caller stops the cluster, started or not.
func newCluster(o options) (*cluster, error) {
	if !o.plainOnly {
		if err := checkFiles(o.manager, o.install); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "fencedlease-demo-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	return &cluster{options: o, dir: dir, worker: o.worker}, nil
}

func checkFiles(paths ...string) error {
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: make demo builds it first", err)
		}
	}
	return nil
}

// start builds the worker and starts the control plane.
func (c *cluster) start(ctx context.Context, say *timeline) error {
	// What others write into the temporary folder on the way goes with ours.
	if err := os.Setenv("TMPDIR", c.dir); err != nil {
		return fmt.Errorf("set TMPDIR: %w", err)
	}
	say.title("A control plane of its own")
	if c.worker == "" {
		c.worker = filepath.Join(c.dir, "worker")
		if err := command(ctx, nil, "go", "build", "-o", c.worker, "./hack/demo/worker"); err != nil {
			return err
		}
	}
	var err error
	if c.env, err = env.Start(ctx, env.Options{ControllerManager: true}); err != nil {
		return err
	}
	if c.kubectl = c.options.kubectl; c.kubectl == "" {
		c.kubectl = c.env.Binary("kubectl")
	}
	config := c.env.Config()
	config.WarningHandler = warnings{say}
	if c.client, err = env.Client(config); err != nil {
		return err
	}
	if c.kubeconfig, err = c.env.WriteKubeconfig("demo-admin", c.env.Config()); err != nil {
		return err
	}
	version, err := discovery.NewDiscoveryClientForConfig(c.env.Config())
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	running, err := version.ServerVersion()
	if err != nil {
		return fmt.Errorf("ask for the version: %w", err)
	}
	say.step("etcd, kube-apiserver %s and kube-controller-manager run", running.GitVersion)
	if err := c.env.InstallGuardedCRD(ctx); err != nil {
		return err
	}
	say.step("the kind reports.example.com is served, with status and scale")
	return nil
}

// stop ends every process and removes every file. It needs no API server that answers.
func (c *cluster) stop() error {
	var errs []error
	for _, child := range c.children {
		errs = append(errs, child.stop(workerGrace))
	}
	if c.manager != nil {
		errs = append(errs, c.manager.stop(managerGrace))
	}
	if c.env != nil {
		errs = append(errs, c.env.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// install applies the manifests and runs the manager's binary with the rights of its ServiceAccount.
func (c *cluster) install(ctx context.Context, say *timeline) error {
	if _, err := c.runKubectl(ctx, "apply", "--server-side", "-f", c.options.install); err != nil {
		return err
	}
	if err := c.create(ctx, guardedKinds()); err != nil {
		return err
	}
	// The controller manager adds the rights on guarded kinds to the manager's role.
	err := c.await(ctx, "the role of guarded kinds to be aggregated", func(ctx context.Context) error {
		role := &rbacv1.ClusterRole{}
		if err := c.client.Get(ctx, client.ObjectKey{Name: "fencedlease-guarded-kinds"}, role); err != nil {
			return err
		}
		if len(role.Rules) == 0 {
			return errors.New("it has no rules")
		}
		return nil
	})
	if err != nil {
		return err
	}
	say.step("%s is applied", c.options.install)
	return c.startManager(ctx, say)
}

func (c *cluster) startManager(ctx context.Context, say *timeline) error {
	config, err := c.env.ServiceAccount(ctx, systemNamespace, managerAccount)
	if err != nil {
		return err
	}
	kubeconfig, err := c.env.WriteKubeconfig("manager", config)
	if err != nil {
		return err
	}
	port, err := c.env.Port()
	if err != nil {
		return err
	}
	probes, err := c.env.Port()
	if err != nil {
		return err
	}
	probeAddress := "127.0.0.1:" + strconv.Itoa(probes)
	c.manager, err = startChild(c.dir, "manager", nil, nil, []string{"KUBECONFIG=" + kubeconfig}, c.options.manager,
		"--namespace="+systemNamespace,
		"--webhook-host=127.0.0.1",
		"--webhook-port="+strconv.Itoa(port),
		"--webhook-url=https://127.0.0.1:"+strconv.Itoa(port),
		"--health-probe-bind-address="+probeAddress,
		"--leader-elect",
		"--drain-delay=0s")
	if err != nil {
		return err
	}
	err = c.await(ctx, "the manager to be ready", func(ctx context.Context) error {
		return get(ctx, "http://"+probeAddress+"/readyz?verbose")
	})
	if err != nil {
		return err
	}
	say.step("the manager is ready, as system:serviceaccount:%s:%s", systemNamespace, managerAccount)
	return nil
}

// get returns an error with the body, if the answer is not 200.
func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		var body bytes.Buffer
		_, _ = body.ReadFrom(response.Body)
		return fmt.Errorf("%s: %s", response.Status, body.String())
	}
	return nil
}

// await asks until check is content. It gives up at once when the manager has ended.
func (c *cluster) await(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		last := check(ctx)
		if last == nil {
			return nil
		}
		if c.manager != nil && !c.manager.running() {
			return fmt.Errorf("wait for %s: the manager has ended (%s); %s", what, c.manager.cmd.ProcessState, c.manager.logTail())
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			err := fmt.Errorf("wait for %s: %w; last answer: %w", what, ctx.Err(), last)
			if c.manager != nil {
				return fmt.Errorf("%w; the manager's log: %s", err, c.manager.logTail())
			}
			return err
		}
	}
}

// runKubectl runs kubectl as the administrator and returns what it prints.
func (c *cluster) runKubectl(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	// A home of its own, so that neither settings nor caches of the machine matter.
	environment := []string{"HOME=" + c.dir, "KUBECONFIG=" + c.kubeconfig}
	cmd := exec.CommandContext(ctx, c.kubectl, args...)
	err := runCommand(cmd, environment, &out)
	return out.String(), err
}

func command(ctx context.Context, environment []string, name string, args ...string) error {
	return runCommand(exec.CommandContext(ctx, name, args...), environment, &bytes.Buffer{})
}

func runCommand(cmd *exec.Cmd, environment []string, out *bytes.Buffer) error {
	var errOut bytes.Buffer
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = out, &errOut
	// A group of its own, so that an interrupt ends also what the command has started.
	cmd.SysProcAttr = childAttributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w: %s", cmd, err, bytes.TrimSpace(errOut.Bytes()))
	}
	return nil
}

// warnings prints the warnings of the API server.
type warnings struct{ say *timeline }

func (w warnings) HandleWarningHeader(code int, _, text string) {
	const miscellaneous = 299 // the only code that Kubernetes uses
	if code == miscellaneous {
		w.say.step("Warning: %s", text)
	}
}
