// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package mutants_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
	"github.com/fencedlease/fencedlease/test/robustness/pause"
)

const (
	patience     = 30 * time.Second
	pollInterval = 20 * time.Millisecond

	managerProgram = "cmd/manager"
	actorProgram   = "test/robustness/mutants/actor"
)

// bench is a cluster in which one manager after the other runs as a process of its own, by the proxy.
type bench struct {
	cluster *env.Environment
	admin   client.Client
	proxy   *apiProxy
	gap     *env.AdmissionGap
	judged  *pause.Judgements
	product *pause.Product
	runner  *pause.Runner

	port, probes      int
	managers          int
	manager           *env.Program
	managerPath       string
	actorPath         string
	adminKubeconfig   string
	managerKubeconfig string
}

func newBench(t env.T) (*bench, error) {
	t.Helper()
	ctx := t.Context()
	b := &bench{cluster: env.StartT(t, env.Options{})}
	if err := b.cluster.InstallGuardedCRD(ctx); err != nil {
		return nil, err
	}
	if err := product.Install(ctx, b.cluster); err != nil {
		return nil, err
	}
	var err error
	if b.admin, err = env.Client(b.cluster.Config()); err != nil {
		return nil, err
	}
	if b.proxy, err = startAPIProxy(t, b.cluster); err != nil {
		return nil, err
	}
	if b.gap, err = pause.StartGap(t, b.cluster); err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = b.gap.Close(context.WithoutCancel(ctx)) })
	b.judged = pause.NewJudgements()
	if b.product, err = pause.NewProduct(ctx, b.cluster, b.judged); err != nil {
		return nil, err
	}
	if b.runner, err = pause.NewRunner(b.cluster, b.product, b.gap); err != nil {
		return nil, err
	}
	if b.port, err = b.cluster.Port(); err != nil {
		return nil, err
	}
	if b.probes, err = b.cluster.Port(); err != nil {
		return nil, err
	}
	account, err := b.cluster.ServiceAccount(ctx, product.Namespace, product.ServiceAccount)
	if err != nil {
		return nil, err
	}
	if b.managerKubeconfig, err = b.cluster.WriteKubeconfig("manager", b.proxy.config(account)); err != nil {
		return nil, err
	}
	b.adminKubeconfig, err = b.cluster.WriteKubeconfig("holder", b.cluster.Config())
	return b, err
}

// swap ends the manager that runs, with its leases, and runs another program as the manager.
func (b *bench) swap(ctx context.Context, path string) error {
	if err := b.stop(ctx); err != nil {
		return err
	}
	b.managerPath = path
	return b.start(ctx)
}

// stop kills the manager.
func (b *bench) stop(ctx context.Context) error {
	if b.manager == nil {
		return nil
	}
	if err := b.manager.Kill(); err != nil {
		return fmt.Errorf("kill manager: %w", err)
	}
	b.manager = nil
	leases := &v1alpha1.FencedLeaseList{}
	if err := b.admin.List(ctx, leases); err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	for i := range leases.Items {
		if err := b.admin.Delete(ctx, &leases.Items[i]); err != nil {
			return fmt.Errorf("delete lease: %w", err)
		}
	}
	return nil
}

// start runs the manager and returns when it serves.
func (b *bench) start(ctx context.Context) error {
	b.managers++
	address := "127.0.0.1:" + strconv.Itoa(b.probes)
	b.manager = b.cluster.NewProgram("manager-"+strconv.Itoa(b.managers), b.managerPath, []string{"KUBECONFIG=" + b.managerKubeconfig},
		"--namespace="+product.Namespace, "--webhook-host=127.0.0.1", "--webhook-port="+strconv.Itoa(b.port),
		"--webhook-url=https://127.0.0.1:"+strconv.Itoa(b.port), "--health-probe-bind-address="+address, "--drain-delay=0",
		// One level below debugging, where nothing is left out of the log.
		"--zap-log-level=2", "--zap-encoder=json",
	)
	if err := b.manager.Start(); err != nil {
		return err
	}
	b.judged.Follow(b.manager.LogPath())
	err := until(ctx, func(ctx context.Context) error {
		select {
		case <-b.manager.Ended():
			return errors.New("the manager has ended, see " + b.manager.LogPath())
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New("readyz answers " + response.Status)
		}
		return b.admin.Create(ctx, env.NewLease(metav1.NamespaceDefault, "first"), client.DryRunAll)
	})
	if err != nil {
		return fmt.Errorf("wait for the manager: %w", err)
	}
	return nil
}

// act runs the actor as the administrator. What it says is in the error.
func (b *bench) act(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, b.actorPath, args...)
	cmd.Env = []string{"KUBECONFIG=" + b.adminKubeconfig}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("actor %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// until repeats an action until it succeeds.
func until(ctx context.Context, action func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(ctx context.Context) (bool, error) {
		last = action(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}
