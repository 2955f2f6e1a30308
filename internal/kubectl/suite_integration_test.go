// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kubectl_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
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
	files   atomic.Int64
}

// install starts a control plane with the product for a test. Before is called when nothing of it is installed yet.
func install(t *testing.T, before func(*installation)) *installation {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	cluster := env.StartT(t, env.Options{})
	ctx := t.Context()
	admin, err := env.Client(cluster.Config())
	must(t, err)
	i := &installation{cluster: cluster, admin: admin, cache: t.TempDir()}
	before(i)
	must(t, cluster.InstallGuardedCRD(ctx))
	must(t, product.Install(ctx, cluster))
	manager, err := product.StartManager(ctx, cluster, logr.Discard())
	must(t, err)
	t.Cleanup(func() { must(t, manager.Stop()) })
	return i
}

// answer is what a call of the plugin did.
type answer struct {
	code        int
	out, errOut string
}

// with is what a call of the plugin is given besides its arguments.
type with struct {
	config *rest.Config
	env    map[string]string
	stdin  string
}

// as runs the plugin in the test's process.
func (i *installation) as(ctx context.Context, t *testing.T, w with, args ...string) answer {
	t.Helper()
	var out, errOut bytes.Buffer
	code := i.stream(ctx, t, w, &out, &errOut, args...)
	return answer{code: code, out: out.String(), errOut: errOut.String()}
}

func (i *installation) stream(ctx context.Context, t *testing.T, w with, out, errOut io.Writer, args ...string) int {
	t.Helper()
	if w.config == nil {
		w.config = i.cluster.Config()
	}
	streams := genericiooptions.IOStreams{In: strings.NewReader(w.stdin), Out: out, ErrOut: errOut}
	f := cli.NewFactory(streams, clock.RealClock{}, func(name string) string { return w.env[name] })
	return kubectl.Execute(ctx, f, append([]string{"--kubeconfig=" + i.kubeconfig(t, w.config), "--cache-dir=" + i.cache}, args...))
}

// kubeconfig writes a configuration to a file of the test.
func (i *installation) kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	path, err := i.cluster.WriteKubeconfig("plugin-"+strconv.FormatInt(i.files.Add(1), 10), config)
	must(t, err)
	t.Cleanup(func() { _ = os.Remove(path) })
	return path
}

// call runs the plugin as the administrator.
func (i *installation) call(t *testing.T, args ...string) answer {
	t.Helper()
	return i.as(t.Context(), t, with{}, args...)
}

// succeeds is call for what must succeed. It returns standard output without the last end of a line.
func (i *installation) succeeds(t *testing.T, args ...string) string {
	t.Helper()
	return i.call(t, args...).want(t, 0, "")
}

// want checks the exit code, and that standard error has a text. It returns standard output without the last end of a line.
func (a answer) want(t *testing.T, code int, said string) string {
	t.Helper()
	if a.code != code || !strings.Contains(a.errOut, said) {
		t.Fatalf("want exit code %d and on standard error %q, got exit code %d\n%s--- standard error\n%s", code, said, a.code, a.out, a.errOut)
	}
	return strings.TrimSuffix(a.out, "\n")
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

// report creates a report in a lease's namespace, under a token.
func (i *installation) report(t *testing.T, lease *v1alpha1.FencedLease, name, token string) {
	t.Helper()
	report := env.NewReport(lease.Namespace, name, "first")
	report.SetAnnotations(map[string]string{v1alpha1.TokenKey(lease.Name): token})
	must(t, i.admin.Create(t.Context(), report))
}

// value returns spec.value of a report, or an empty text if it is gone.
func (i *installation) value(t *testing.T, lease *v1alpha1.FencedLease, name string) string {
	t.Helper()
	report := env.NewReport(lease.Namespace, name, "")
	err := i.admin.Get(t.Context(), client.ObjectKeyFromObject(report), report)
	if apierrors.IsNotFound(err) {
		return ""
	}
	must(t, err)
	value, _, err := unstructured.NestedString(report.Object, "spec", "value")
	must(t, err)
	return value
}

// read reads a lease anew.
func (i *installation) read(t *testing.T, lease *v1alpha1.FencedLease) *v1alpha1.FencedLease {
	t.Helper()
	fresh := &v1alpha1.FencedLease{}
	must(t, i.admin.Get(t.Context(), client.ObjectKeyFromObject(lease), fresh))
	return fresh
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		t.Fatalf("wait until %s: %v", what, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
