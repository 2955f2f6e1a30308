// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kubectl_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// installation is a control plane with the product installed, and who uses the plugin on it.
type installation struct {
	cluster *env.Environment
	admin   client.Client
	cache   string
}

// install starts a control plane with the product for a test.
func install(t *testing.T) *installation {
	t.Helper()
	cluster := env.StartT(t, env.Options{})
	ctx := t.Context()
	must(t, cluster.InstallGuardedCRD(ctx))
	must(t, product.Install(ctx, cluster))
	manager, err := product.StartManager(ctx, cluster, logr.Discard())
	must(t, err)
	t.Cleanup(func() { _ = manager.Stop() })
	admin, err := env.Client(cluster.Config())
	must(t, err)
	return &installation{cluster: cluster, admin: admin, cache: t.TempDir()}
}

// answer is what a call of the plugin did.
type answer struct {
	code        int
	out, errOut string
}

// call runs the plugin in the test's process.
type call struct {
	config *rest.Config
	env    map[string]string
	stdin  string
	clock  clock.WithTicker
}

func (i *installation) as(t *testing.T, config *rest.Config, c call, args ...string) answer {
	t.Helper()
	return i.start(t.Context(), t, config, c, args...)
}

func (i *installation) start(ctx context.Context, t *testing.T, config *rest.Config, c call, args ...string) answer {
	t.Helper()
	kubeconfig, err := i.cluster.WriteKubeconfig("plugin-"+filepath.Base(t.TempDir())+strings.ReplaceAll(t.Name(), "/", "-"), config)
	must(t, err)
	defer func() { _ = os.Remove(kubeconfig) }()
	var out, errOut bytes.Buffer
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	f := cli.NewFactory(genericiooptions.IOStreams{In: strings.NewReader(c.stdin), Out: &out, ErrOut: &errOut}, c.clock,
		func(name string) string { return c.env[name] })
	code := kubectl.Execute(ctx, f, append([]string{"--kubeconfig=" + kubeconfig, "--cache-dir=" + i.cache}, args...))
	return answer{code: code, out: out.String(), errOut: errOut.String()}
}

// call runs the plugin as the administrator.
func (i *installation) call(t *testing.T, args ...string) answer {
	t.Helper()
	return i.as(t, i.cluster.Config(), call{}, args...)
}

// lease creates a FencedLease that guards reports in a namespace of its own.
func (i *installation) lease(t *testing.T, mutations ...func(*v1alpha1.FencedLease)) *v1alpha1.FencedLease {
	t.Helper()
	lease := env.NewLease(i.cluster.CreateNamespace(t), "report-writer", mutations...)
	must(t, product.CreateLease(t.Context(), i.admin, lease))
	return lease
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
