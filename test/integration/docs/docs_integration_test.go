// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package docs_test runs the commands of the documents as their readers do, and looks their Go code up in the examples,
// which are compiled.
package docs_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

const root = "../../.."

// block is a fenced block of a document.
type block struct{ language, text string }

var fence = regexp.MustCompile("(?ms)^```(\\w+[^\n]*)\n(.*?)^```$")

// text returns a document.
func text(t *testing.T, document string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func blocksIn(content string) []block {
	var blocks []block
	for _, m := range fence.FindAllStringSubmatch(content, -1) {
		blocks = append(blocks, block{m[1], m[2]})
	}
	return blocks
}

func blocksOf(t *testing.T, document string) []block {
	t.Helper()
	return blocksIn(text(t, document))
}

// reader follows a document in a checkout of the repository, as the administrator of a cluster.
type reader struct {
	checkout    string
	environment []string
}

func newReader(t *testing.T, cluster *env.Environment) *reader {
	t.Helper()
	kubeconfig, err := cluster.WriteKubeconfig("reader", cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	// A copy of what the commands use of the repository, so that what they write ends with the test.
	checkout, tools := t.TempDir(), t.TempDir()
	for _, name := range []string{"cmd", "internal", "pkg", "api", "examples", "config", "dist", "go.mod", "go.sum"} {
		if err := os.Symlink(filepath.Join(cluster.ModuleRoot(), name), filepath.Join(checkout, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(cluster.Binary("kubectl"), filepath.Join(tools, "kubectl")); err != nil {
		t.Fatal(err)
	}
	return &reader{checkout, append(os.Environ(),
		"KUBECONFIG="+kubeconfig, "PATH="+filepath.Join(checkout, "bin")+":"+tools+":"+os.Getenv("PATH"), "PWD="+checkout)}
}

// run runs commands, which must succeed, and returns what they have said.
func (r *reader) run(t *testing.T, script string) string {
	t.Helper()
	bash := exec.CommandContext(t.Context(), "bash")
	bash.Dir, bash.Env = r.checkout, r.environment
	bash.Stdin = strings.NewReader("set -euo pipefail\n" + script)
	var output bytes.Buffer
	bash.Stdout, bash.Stderr = &output, &output
	// A group of its own, so that nothing which the commands start in the background outlives the test.
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := bash.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) })
	if err := bash.Wait(); err != nil {
		t.Fatalf("the commands: %v\n%s\nThey were:\n%s", err, output.String(), script)
	}
	t.Logf("the commands have said:\n%s", output.String())
	return output.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The commands of the leader guide, from an empty cluster on. Only the installation is the test's own: no kubelet runs the
// manager here.
func TestTheLeaderGuideWorks(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	cluster := env.StartT(t, env.Options{ControllerManager: true})
	must(t, product.Install(t.Context(), cluster))
	manager, err := product.StartManager(t.Context(), cluster, testr.New(t))
	must(t, err)
	t.Cleanup(func() { must(t, manager.Stop()) })
	var script strings.Builder
	commands := 0
	for _, b := range blocksOf(t, "docs/leaders.md") {
		if b.language == "sh" {
			script.WriteString(b.text)
			commands++
		}
	}
	if commands < 7 {
		t.Fatalf("only %d blocks of commands were found", commands)
	}
	output := newReader(t, cluster).run(t, script.String())
	for _, want := range []string{"MissingToken", "report-writer", `wrote "result `, "kind: RoleBinding", "writing report weekly under "} {
		if !strings.Contains(output, want) {
			t.Errorf("the output does not show %q:\n%s", want, output)
		}
	}
}

func TestTheGoCodeOfTheGuideIsThatOfTheExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "examples", "*", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	// What is too small for a program is an example of its package.
	ofPackages, err := filepath.Glob(filepath.Join(root, "pkg", "leader", "*", "example_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, ofPackages...)
	var code []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code = append(code, string(text))
	}
	found := 0
	for _, b := range blocksOf(t, "docs/leaders.md") {
		if b.language != "go" {
			continue
		}
		found++
		if !strings.Contains(strings.Join(code, "\n"), b.text) {
			t.Errorf("no example has this code:\n%s", b.text)
		}
	}
	if found < 4 {
		t.Errorf("only %d blocks of Go were found", found)
	}
}
