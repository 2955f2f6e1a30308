// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fencedlease/fencedlease/internal/kubectl"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/clitest"
)

// TestWrongCallsSayWhatToDo calls every command in wrong ways that are noticed before any request is sent.
func TestWrongCallsSayWhatToDo(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "report.yaml")
	if err := os.WriteFile(manifest, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 254)
	var golden strings.Builder
	for _, args := range [][]string{
		{"gett"},
		{"--nonsense"},
		{"get", "--output=xml"},
		{"get", "a", "-A"},
		{"get", "a", "b", "-w"},
		{"get", "a", "-l", "x=y"},
		{"get", "-l", "!!"},
		{"describe"},
		{"describe", "a", "b"},
		{"describe", ""},
		{"explain"},
		{"explain", "report/daily", "--verb=scribble"},
		{"explain", "report/daily", "--verb=create"},
		{"explain", "report/daily", "--verb=delete", "-p", "{}"},
		{"explain", "report/daily", "--verb=delete", "--replicas=3"},
		{"explain", "report/daily", "--replicas=-3"},
		{"explain", "report/daily", "--carrier=pigeon"},
		{"explain", "report/daily", "--type=strategic", "-p", "{}"},
		{"explain", "report/daily", "--verb=scale", "--carrier=annotation", "--token=1"},
		{"explain", "report/daily", "--token=eyJhbGciOi"},
		{"operation", "report/daily"},
		{"operation", "report", "import-17"},
		{"operation", "report/daily", "_17"},
		{"operation", "report/daily", "import-17", "-o", "yaml"},
		{"annotate", "report/daily", "--token=1", "--operation=a b"},
		{"delete", "report/daily", "--token=1", "--operation=import-17"},
		{"acquire"},
		{"acquire", "a"},
		{"acquire", "a", "--identity=" + long},
		{"acquire", "a", "--identity=me", "--timeout=1m"},
		{"acquire", "a", "--identity=me", "--wait", "--timeout=-1m"},
		{"acquire", "a", "--identity=me", "--dry-run=client"},
		{"release"},
		{"release", "a", "--token=48215"},
		{"release", "a", "--token=48215.k3v9x2ab", "--yes"},
		{"release", "a", "--token=b=48215.k3v9x2ab"},
		{"release", "a", "--yes", "--reason=" + long + long},
		{"apply"},
		{"apply", "--token=1"},
		{"apply", "-f", manifest},
		{"apply", "-f", manifest, "--token=1", "--field-manager="},
		{"apply", "-f", manifest, "--token=1", "--carrier=pigeon"},
		{"apply", "-f", manifest, "--token=1", "-o", "wide"},
		{"apply", "report/daily", "--token=1"},
		{"patch", "report/daily", "--token=1"},
		{"patch", "report/daily", "--token=1", "-p", "{"},
		{"patch", "report/daily", "--token=1", "-p", "{}", "--patch-file=x"},
		{"patch", "report/daily", "--token=1", "-p", "{}", "--type=strategic"},
		{"patch", "report/daily", "--token=1", "-p", "{}", "--subresource=exec"},
		{"annotate", "report/daily", "a=b"},
		{"annotate", "report/daily", "a b=c", "--token=1"},
		{"annotate", "report/daily", "a=b", "report/weekly", "--token=1"},
		{"annotate", "report/daily", "token.fencedlease.io/report-writer=1", "--token=1"},
		{"delete", "report/daily"},
		{"delete", "report/daily", "--token=1", "--cascade=false"},
		{"rbac"},
		{"rbac", "a"},
		{"rbac", "a", "--lease=b", "--serviceaccount=worker"},
		{"rbac", "a", "--serviceaccount=:worker"},
		{"rbac", "a", "--serviceaccount=worker", "--carrier=pigeon"},
		{"rbac", "a", "--serviceaccount=worker", "--elector=dice"},
		{"rbac", "a", "--serviceaccount=worker", "--verbs=get,eat"},
		{"rbac", "a", "--serviceaccount=worker", "--carrier=credential", "--elector=none"},
		{"run"},
		{"run", "a"},
		{"run", "a", "--"},
		{"run", "a", "sleep", "1"},
		{"run", "--", "sleep", "1"},
		{"run", "a", "--carrier=pigeon", "--", "true"},
		{"run", "a", "--timeout=1m", "--wait=false", "--", "true"},
		{"run", "a", "--identity=" + long, "--", "true"},
		{"run", "a", "--grace-period=-1s", "--", "true"},
		{"completion"},
		{"completion", "tcsh"},
		{"version", "now"},
	} {
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		f := cli.NewFactory(streams, clocktesting.NewFakeClock(clitest.Now), func(string) string { return "" })
		code := kubectl.Execute(t.Context(), f, append([]string{"--kubeconfig=/nonexistent", "--cache-dir=" + t.TempDir()}, args...))
		if code == 0 || out.Len() > 0 {
			t.Errorf("%q: want an error and nothing on standard output, got exit code %d and %q", args, code, out)
		}
		text := strings.ReplaceAll(strings.Join(args, " "), long, "xxx…")
		fmt.Fprintf(&golden, "$ kubectl fencedlease %s\n%s[%d]\n\n", strings.ReplaceAll(text, manifest, "report.yaml"),
			strings.ReplaceAll(errOut.String(), manifest, "report.yaml"), code)
	}
	clitest.Golden(t, "wrong calls", golden.String())
}

func TestCompletionScripts(t *testing.T) {
	for shell, want := range map[string]string{
		"bash": "__start_kubectl-fencedlease", "zsh": "#compdef kubectl-fencedlease", "fish": "complete -c kubectl-fencedlease",
		"powershell": "Register-ArgumentCompleter -CommandName 'kubectl-fencedlease'", "kubectl": "exec kubectl-fencedlease __complete \"$@\"",
	} {
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		f := cli.NewFactory(streams, clocktesting.NewFakeClock(clitest.Now), func(string) string { return "" })
		if code := kubectl.Execute(t.Context(), f, []string{"completion", shell}); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("completion %s: exit code %d, %q is not in its %d bytes; %s", shell, code, want, out.Len(), errOut)
		}
	}
}

func TestArgumentsAreCompleted(t *testing.T) {
	for args, want := range map[string]string{
		"get --output ":    "json\nyaml\nwide\nname\n:4\n",
		"explain --verb u": "create\nupdate\npatch\napply\nstatus\nscale\ndelete\n:4\n",
		"completion z":     "zsh\n:4\n",
		"rel":              "release\tRelease a FencedLease: your own term by its token, or whoever holds it with --yes\n:4\n",
	} {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		f := cli.NewFactory(streams, clocktesting.NewFakeClock(clitest.Now), func(string) string { return "" })
		if code := kubectl.Execute(t.Context(), f, append([]string{"__complete"}, strings.Split(args, " ")...)); code != 0 || out.String() != want {
			t.Errorf("complete %q:\nwant %q\ngot  %q (exit code %d)", args, want, out, code)
		}
	}
}
