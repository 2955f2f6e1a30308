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

func blocksOf(t *testing.T, document string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, block{m[1], m[2]})
	}
	return blocks
}

// The commands of the leader guide, from an empty cluster on. Only the installation is the test's own: no kubelet runs the
// manager here.
func TestTheLeaderGuideWorks(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	cluster := env.StartT(t, env.Options{ControllerManager: true})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(product.Install(t.Context(), cluster))
	manager, err := product.StartManager(t.Context(), cluster, testr.New(t))
	must(err)
	t.Cleanup(func() { must(manager.Stop()) })
	kubeconfig, err := cluster.WriteKubeconfig("reader", cluster.Config())
	must(err)

	// A copy of what the commands use of the repository, so that what they write ends with the test.
	checkout := t.TempDir()
	for _, name := range []string{"cmd", "internal", "pkg", "api", "examples", "config", "go.mod", "go.sum"} {
		must(os.Symlink(filepath.Join(cluster.ModuleRoot(), name), filepath.Join(checkout, name)))
	}
	tools := t.TempDir()
	must(os.Symlink(cluster.Binary("kubectl"), filepath.Join(tools, "kubectl")))

	var script strings.Builder
	script.WriteString("set -euo pipefail\n")
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
	bash := exec.CommandContext(t.Context(), "bash")
	bash.Dir = checkout
	bash.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+tools+":"+os.Getenv("PATH"), "PWD="+checkout)
	bash.Stdin = strings.NewReader(script.String())
	var output bytes.Buffer
	bash.Stdout, bash.Stderr = &output, &output
	// A group of its own, so that nothing which the commands start in the background outlives the test.
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(bash.Start())
	t.Cleanup(func() { _ = syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) })
	if err := bash.Wait(); err != nil {
		t.Fatalf("the commands of the guide: %v\n%s", err, output.String())
	}
	t.Logf("the commands have said:\n%s", output.String())
	for _, want := range []string{"MissingToken", "report-writer", `wrote "result `, "kind: RoleBinding", "writing report weekly under "} {
		if !strings.Contains(output.String(), want) {
			t.Errorf("the output does not show %q:\n%s", want, output.String())
		}
	}
}

func TestTheGoCodeOfTheGuideIsThatOfTheExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "examples", "*", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
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
