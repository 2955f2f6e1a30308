// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package examples_test runs the examples as their readers do: against an API server with the product installed, by their own
// manifests, and with the rights of the service account in these.
package examples_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

const (
	namespace = "reports"
	leaseName = "report-writer"
	// patience bounds every wait, far above what any needs.
	patience = 2 * time.Minute
)

type suite struct {
	*testing.T
	admin      client.Client
	bin        string
	kubeconfig string
}

func TestExamples(t *testing.T) {
	s := newSuite(t)
	t.Run("leader is elected, is refused after a pause, and leads again", func(t *testing.T) { s.in(t).leader() })
	t.Run("clientgo writes its report and releases", func(t *testing.T) { s.in(t).clientGo() })
	t.Run("operator computes results", func(t *testing.T) { s.in(t).operator() })
	t.Run("publish switches to content of its own", func(t *testing.T) { s.in(t).publish() })
	for _, job := range []string{"shell/report.sh", "python/report.py"} {
		t.Run(job+" is fenced by its kubeconfig", func(t *testing.T) { s.in(t).job(job) })
	}
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	s := &suite{T: t, bin: t.TempDir()}
	cluster := env.StartT(t, env.Options{})
	s.must(product.Install(t.Context(), cluster))
	manager, err := product.StartManager(t.Context(), cluster, testr.New(t))
	s.must(err)
	t.Cleanup(func() { s.must(manager.Stop()) })
	s.admin, err = env.Client(cluster.Config())
	s.must(err)

	for _, manifest := range []string{"crds.yaml", "reports.yaml"} {
		_, err = cluster.Kubectl(t.Context(), "apply", "--filename", filepath.Join(cluster.ModuleRoot(), "examples", manifest))
		s.must(err)
	}
	lease := &v1alpha1.FencedLease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName}}
	s.must(product.AwaitCondition(t.Context(), s.admin, lease, v1alpha1.ConditionReady, metav1.ConditionTrue))
	worker, err := cluster.ServiceAccount(t.Context(), namespace, "report-worker")
	s.must(err)
	s.kubeconfig, err = cluster.WriteKubeconfig("report-worker", worker)
	s.must(err)
	s.must(os.Symlink(cluster.Binary("kubectl"), filepath.Join(s.bin, "kubectl")))

	build := exec.CommandContext(t.Context(), "go", "build", "-o", s.bin+"/", "./...", "../cmd/kubectl-fencedlease")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the examples: %v\n%s", err, out)
	}
	return s
}

func (s *suite) in(t *testing.T) *suite {
	c := *s
	c.T = t
	return &c
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// process is a running example.
type process struct {
	s   *suite
	cmd *exec.Cmd

	mu     sync.Mutex
	output bytes.Buffer
	ended  chan struct{}
	err    error
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// start starts a program of the examples as the worker. It is killed at the end of the test, if it has not ended.
func (s *suite) start(program string, args ...string) *process {
	s.Helper()
	p := &process{s: s, ended: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(s.Context()), filepath.Join(s.bin, program), args...)
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "PATH="+s.bin+":"+os.Getenv("PATH"))
	p.cmd.Stdout, p.cmd.Stderr = p, p
	s.must(p.cmd.Start())
	go func() { defer close(p.ended); p.err = p.cmd.Wait() }()
	s.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if s.Failed() {
			s.Logf("%s said:\n%s", program, p.said())
		}
	})
	return p
}

func (p *process) signal(signal syscall.Signal) {
	p.s.Helper()
	p.s.must(p.cmd.Process.Signal(signal))
}

// finish waits until a process has ended by itself, and well.
func (p *process) finish() {
	p.s.Helper()
	select {
	case <-p.ended:
		if p.err != nil {
			p.s.Fatalf("%s: %v\n%s", p.cmd.Path, p.err, p.said())
		}
	case <-time.After(patience):
		p.s.Fatalf("%s does not end\n%s", p.cmd.Path, p.said())
	}
}

func (p *process) awaitSaid(text string) {
	p.s.Helper()
	p.s.eventually("it says "+text, func() bool { return strings.Contains(p.said(), text) })
}

func (s *suite) eventually(what string, condition func() bool) {
	s.Helper()
	err := wait.PollUntilContextTimeout(s.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		s.Fatalf("wait until %s: %v", what, err)
	}
}

// read returns an object of the examples' group, which may be absent.
func (s *suite) read(kind, name string) *unstructured.Unstructured {
	s.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("example.com/v1")
	o.SetKind(kind)
	s.must(client.IgnoreNotFound(s.admin.Get(s.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)))
	return o
}

func (s *suite) text(o *unstructured.Unstructured, path ...string) string {
	s.Helper()
	value, _, err := unstructured.NestedString(o.Object, path...)
	s.must(err)
	return value
}

func (s *suite) lease() *v1alpha1.FencedLease {
	s.Helper()
	lease := &v1alpha1.FencedLease{}
	s.must(s.admin.Get(s.Context(), client.ObjectKey{Namespace: namespace, Name: leaseName}, lease))
	return lease
}

// mark returns the possession of an object's mark.
func (s *suite) mark(o *unstructured.Unstructured) string {
	s.Helper()
	mark, err := token.Parse(o.GetAnnotations()[v1alpha1.TokenKey(leaseName)])
	s.must(err)
	return mark.Possession().String()
}

// markedBy checks that an object carries the mark of the lease's present or last term.
func (s *suite) markedBy(o *unstructured.Unstructured) {
	s.Helper()
	if mark, want := s.mark(o), ptr.Deref(s.lease().Status.Token, ""); mark != want {
		s.Errorf("the mark of %s is %s, want that of %s", o.GetName(), mark, want)
	}
}

func (s *suite) released() {
	s.Helper()
	if holder := ptr.Deref(s.lease().Status.HolderIdentity, "?"); holder != "" {
		s.Errorf("the lease is held by %q still", holder)
	}
}

func (s *suite) leader() {
	a := s.start("leader", "-every=100ms")
	a.awaitSaid("wrote ")
	a.signal(syscall.SIGSTOP)
	b := s.start("leader", "-every=100ms")
	b.awaitSaid("wrote ")
	a.signal(syscall.SIGCONT)
	// Whichever comes first: the write that waits to be sent is held back, or the work learns that its term is over.
	s.eventually("the first has stopped leading", func() bool {
		return strings.Contains(a.said(), "refused: ") || strings.Contains(a.said(), "holds the lease under generation")
	})
	before := s.lease().Status.Generation
	b.signal(syscall.SIGTERM)
	b.finish()
	s.eventually("the first leads again", func() bool { return strings.Count(a.said(), "leading under ") == 2 })
	if after := s.lease().Status.Generation; *after <= *before {
		s.Errorf("generation %d follows %d", *after, *before)
	}
	s.eventually("it has written under the new term", func() bool { return s.mark(s.read("Report", "daily")) == *s.lease().Status.Token })
	a.signal(syscall.SIGTERM)
	a.finish()
	s.released()
}

func (s *suite) clientGo() {
	p := s.start("clientgo", "-report=weekly")
	p.awaitSaid("wrote report weekly")
	p.signal(syscall.SIGTERM)
	p.finish()
	if got := s.text(s.read("Report", "weekly"), "spec", "value"); !strings.HasPrefix(got, "result of ") {
		s.Errorf("the report holds %q", got)
	}
	s.markedBy(s.read("Report", "weekly"))
	s.released()
}

func (s *suite) operator() {
	writer := s.start("clientgo", "-report=monthly")
	writer.awaitSaid("wrote report monthly")
	writer.signal(syscall.SIGTERM)
	writer.finish()
	p := s.start("operator")
	s.eventually("the report has its result", func() bool {
		report := s.read("Report", "monthly")
		return s.text(report, "status", "result") == strings.ToUpper(s.text(report, "spec", "value"))
	})
	p.signal(syscall.SIGTERM)
	p.finish()
	s.released()
}

func (s *suite) publish() {
	for _, text := range []string{"all is well", "all is better"} {
		s.start("publish", "-text="+text).finish()
		publication := s.read("Publication", "front-page")
		page := s.read("Page", s.text(publication, "spec", "pageRef", "name"))
		if got := s.text(page, "spec", "text"); got != text {
			s.Errorf("the publication shows %q, want %q", got, text)
		}
		s.markedBy(publication)
		s.released()
		staged := &unstructured.UnstructuredList{}
		staged.SetAPIVersion("example.com/v1")
		staged.SetKind("PageList")
		s.must(s.admin.List(s.Context(), staged, client.InNamespace(namespace)))
		if len(staged.Items) != 1 {
			s.Errorf("%d pages are left, want the one that is shown", len(staged.Items))
		}
	}
}

func (s *suite) job(script string) {
	path, err := filepath.Abs(script)
	s.must(err)
	name := strings.TrimSuffix(filepath.Base(filepath.Dir(path)), "/")
	s.start("kubectl", "fencedlease", "run", leaseName, "-n", namespace, "--", path, name, "all is well").finish()
	report := s.read("Report", name)
	if got := s.text(report, "spec", "value"); got != "all is well" {
		s.Errorf("the report holds %q", got)
	}
	s.markedBy(report)
	s.released()
}
