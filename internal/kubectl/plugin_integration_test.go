// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kubectl_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

// TestPlugin calls every command on a real API server with the product installed.
func TestPlugin(t *testing.T) {
	i := install(t, func(i *installation) {
		i.call(t, "get").want(t, 1, "FencedLease is not installed on this cluster: install it with")
	})
	for name, test := range map[string]func(*testing.T, *installation){
		"get lists leases and follows them":                              getLists,
		"describe tells possession, objects and events":                  describeTells,
		"acquire takes a free lease only":                                acquireTakes,
		"acquire waits":                                                  acquireWaits,
		"release ends the term that is meant":                            releaseEnds,
		"writes land under the current token only":                       writesLand,
		"a token finds its lease":                                        tokensFindTheirLease,
		"explain says what the write itself is answered":                 explainIsTrue,
		"explain says what is needed":                                    explainWithoutWrite,
		"the roles that rbac prints are enough, and none is too many":    rolesAreExact,
		"missing rights are named":                                       missingRights,
		"kubectl finds the plugin and completes its arguments":           kubectlFindsIt,
		"no API server is said so":                                       noServer,
		"nothing writes a FencedLease by the commands for other objects": leasesAreNoTargets,
	} {
		t.Run(name, func(t *testing.T) { test(t, i) })
	}
}

func getLists(t *testing.T, i *installation) {
	lease := i.lease(t)
	n := "-n=" + lease.Namespace
	for _, want := range []string{"NAME", "report-writer", "<none>", "True"} {
		if out := i.succeeds(t, "get", n); !strings.Contains(out, want) {
			t.Errorf("get: want %q in it, got\n%s", want, out)
		}
	}
	if out := i.succeeds(t, "get", "-A", "--no-headers"); !strings.Contains(out, lease.Namespace+"   report-writer") {
		t.Errorf("get -A: want the lease and its namespace in it, got\n%s", out)
	}
	if out := i.succeeds(t, "get", "report-writer", n, "-o=name"); out != "fencedlease.coordination.fencedlease.io/report-writer" {
		t.Errorf("get -o name: got %s", out)
	}
	read := &v1alpha1.FencedLease{}
	must(t, yaml.UnmarshalStrict([]byte(i.succeeds(t, "get", "report-writer", n, "-o=yaml")), read))
	if read.UID != lease.UID || read.Kind != "FencedLease" {
		t.Errorf("get -o yaml: want the lease itself, got %+v", read.ObjectMeta)
	}
	i.call(t, "get", "nothing", n).want(t, 1, "kubectl fencedlease get -n "+lease.Namespace)
	i.call(t, "get", "-n=empty").want(t, 0, "No FencedLeases found in namespace empty.")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	ended := make(chan int)
	go func() {
		ended <- i.stream(ctx, t, with{}, writer, io.Discard, "get", "report-writer", n, "-w", "-o=wide")
	}()
	lines := bufio.NewScanner(reader)
	seen := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Fatalf("the watch ended before it showed %q: %v", text, lines.Err())
	}
	seen("<none>")
	token := i.succeeds(t, "acquire", "report-writer", n, "--identity=watched")
	seen(token)
	must(t, i.cluster.RestartAPIServer(t.Context(), 0))
	eventually(t, "the API server answers", func() bool { return i.call(t, "get", n).code == 0 })
	eventually(t, "the lease is released", func() bool { return i.call(t, "release", "report-writer", n, "--token="+token).code == 0 })
	seen("<none>")
	cancel()
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	if code := <-ended; code != 1 {
		t.Errorf("exit code of a cancelled watch: want 1, got %d", code)
	}
}

func describeTells(t *testing.T, i *installation) {
	lease := i.lease(t)
	n := "-n=" + lease.Namespace
	token := i.succeeds(t, "acquire", "report-writer", n, "--identity=first")
	i.report(t, lease, "old", token)
	i.succeeds(t, "release", "report-writer", n, "--yes", "--reason=a test")
	token = i.succeeds(t, "acquire", "report-writer", n, "--identity=second")
	i.report(t, lease, "new", token)
	out := i.succeeds(t, "describe", "report-writer", n)
	for _, want := range []string{
		"Holder:       second", "Token:        " + token, "reports.example.com:  2 (1 with the lease's generation, 1 with an older mark)",
		"ReleasedByHand", "with kubectl fencedlease release: a test", "tokens from everybody", "InForce",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("describe: want %q in it, got\n%s", want, out)
		}
	}
	i.call(t, "describe", "nothing", n).want(t, 1, "not found: see which there are with")
}

func acquireTakes(t *testing.T, i *installation) {
	lease := i.lease(t)
	args := []string{"acquire", "report-writer", "-n=" + lease.Namespace}
	acquire := func(more ...string) answer { return i.call(t, append(args, more...)...) }
	acquire("--identity=me", "--dry-run=server").want(t, 0, "Would acquire FencedLease")
	if holder := *i.read(t, lease).Status.HolderIdentity; holder != "" {
		t.Fatalf("holder after a dry run: want none, got %q", holder)
	}
	first := acquire("--identity=me").want(t, 0, "Nothing renews it")
	if got := *i.read(t, lease).Status.Token; got != first {
		t.Errorf("token: want that of the lease, %s, got %s", got, first)
	}
	if out := acquire("--identity=you").want(t, 2, "\"me\" holds generation"); out != "" {
		t.Errorf("refused acquisition: want nothing on standard output, got %s", out)
	}
	acquire("--identity=me").want(t, 2, "add --yes to end that term")
	second := acquire("--identity=me", "--yes").want(t, 0, "Acquired FencedLease")
	if second == first {
		t.Error("the same identity has to get a term of its own")
	}
	i.call(t, "patch", "report/any", "-n="+lease.Namespace, "-p={}", "--token="+first).want(t, 1, "not found")
	if !i.hasEvent(t, lease, "TakenOverByHand") {
		t.Error("ending one's own term has to leave an event")
	}
	i.call(t, "acquire", "nothing", "-n="+lease.Namespace, "--identity=me").want(t, 1, "not found: see which there are with")
}

func (i *installation) hasEvent(t *testing.T, lease *v1alpha1.FencedLease, reason string) bool {
	t.Helper()
	events := &corev1.EventList{}
	must(t, i.admin.List(t.Context(), events, client.InNamespace(lease.Namespace)))
	for _, e := range events.Items {
		if e.Reason == reason && e.InvolvedObject.UID == lease.UID {
			return true
		}
	}
	return false
}

func acquireWaits(t *testing.T, i *installation) {
	short := func(l *v1alpha1.FencedLease) { l.Spec.LeaseDurationSeconds = 1 }
	lease := i.lease(t)
	n := "-n=" + lease.Namespace
	token := i.succeeds(t, "acquire", "report-writer", n, "--identity=first")
	i.call(t, "acquire", "report-writer", n, "--identity=second", "--wait", "--timeout=600ms").want(t, 2, "did not become free within 600ms")

	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan answer)
	go func() {
		cancelled <- i.as(ctx, t, with{}, "acquire", "report-writer", n, "--identity=cancelled", "--wait")
	}()
	waited := make(chan answer)
	go func() {
		waited <- i.as(t.Context(), t, with{}, "acquire", "report-writer", n, "--identity=second", "--wait")
	}()
	cancel()
	(<-cancelled).want(t, 1, "")
	i.succeeds(t, "release", "report-writer", n, "--token="+token)
	(<-waited).want(t, 0, "as \"second\"")
	if holder := *i.read(t, lease).Status.HolderIdentity; holder != "second" {
		t.Errorf("holder: want second, got %q", holder)
	}

	silent := i.lease(t, short)
	i.succeeds(t, "acquire", "report-writer", "-n="+silent.Namespace, "--identity=silent")
	i.call(t, "acquire", "report-writer", "-n="+silent.Namespace, "--identity=heir", "--wait").want(t, 0, "as \"heir\"")
}

func releaseEnds(t *testing.T, i *installation) {
	lease := i.lease(t)
	args := []string{"release", "report-writer", "-n=" + lease.Namespace}
	release := func(more ...string) answer { return i.call(t, append(args, more...)...) }
	release("--yes").want(t, 0, "there is nothing to release")
	first := i.succeeds(t, "acquire", "report-writer", "-n="+lease.Namespace, "--identity=first")
	release().want(t, 1, "Add --yes to do it")
	release("--dry-run=server").want(t, 0, "has ended (server dry run)")
	if holder := *i.read(t, lease).Status.HolderIdentity; holder != "first" {
		t.Fatalf("holder after what must change nothing: want first, got %q", holder)
	}
	release("--token="+first+"/17").want(t, 0, "Released")
	if i.hasEvent(t, lease, "ReleasedByHand") {
		t.Error("the end of one's own term needs no event")
	}
	second := i.succeeds(t, "acquire", "report-writer", "-n="+lease.Namespace, "--identity=second")
	release("--token="+first).want(t, 2, "has ended already: \"second\" holds generation")
	if got := *i.read(t, lease).Status.Token; got != second || *i.read(t, lease).Status.HolderIdentity != "second" {
		t.Fatal("a release by the token of an ended term must leave the successor alone")
	}
	release("--yes", "--reason=it hangs").want(t, 0, "of \"second\" has ended")
	if !i.hasEvent(t, lease, "ReleasedByHand") {
		t.Error("ending another's term has to leave an event")
	}
}

func manifest(t *testing.T, lease *v1alpha1.FencedLease, name, value string) string {
	t.Helper()
	text, err := yaml.Marshal(env.NewReport(lease.Namespace, name, value).Object)
	must(t, err)
	return string(text)
}

func writesLand(t *testing.T, i *installation) {
	for _, carrier := range []string{"request", "annotation"} {
		t.Run(carrier, func(t *testing.T) {
			lease := i.lease(t)
			n := "-n=" + lease.Namespace
			stale := i.succeeds(t, "acquire", "report-writer", n, "--identity=first")
			i.report(t, lease, "daily", stale)
			i.succeeds(t, "release", "report-writer", n, "--token="+stale)
			current := i.succeeds(t, "acquire", "report-writer", n, "--identity=second")

			for _, c := range []struct {
				value string
				done  string
				args  []string
			}{
				{"applied", "applied", []string{"apply", "-f=-", "--force-conflicts"}},
				{"merged", "patched", []string{"patch", "report/daily", "-p={\"spec\":{\"value\":\"merged\"}}"}},
				{"patched", "patched", []string{"patch", "report", "daily", "--type=json", "-p=[{\"op\":\"replace\",\"path\":\"/spec/value\",\"value\":\"patched\"}]"}},
				{"patched", "annotated", []string{"annotate", "report/daily", "reviewed=yes"}},
				{"patched", "annotated", []string{"annotate", "report/daily"}},
				{"patched", "patched", []string{"patch", "report/daily", "--subresource=status", "-p={\"status\":{\"phase\":\"Done\"}}"}},
				{"", "deleted", []string{"delete", "report/daily"}},
			} {
				before := i.value(t, lease, "daily")
				call := func(token string, more ...string) answer {
					args := append(append(c.args[:len(c.args):len(c.args)], n, "--carrier="+carrier, "--token=report-writer="+token), more...)
					return i.as(t.Context(), t, with{stdin: manifest(t, lease, "daily", c.value)}, args...)
				}
				call(stale).want(t, 2, "refused by the fence (StaleToken)")
				call(current, "--dry-run=server").want(t, 0, "")
				if got := i.value(t, lease, "daily"); got != before {
					t.Fatalf("%v: a stale write, or a dry run, has changed the object from %q to %q", c.args, before, got)
				}
				if out := call(current).want(t, 0, ""); out != "report.example.com/daily "+c.done {
					t.Errorf("%v: got %q", c.args, out)
				}
				if got := i.value(t, lease, "daily"); got != c.value {
					t.Errorf("%v: want the value %q, got %q", c.args, c.value, got)
				}
			}
			i.call(t, "delete", "report/daily", n, "--carrier="+carrier, "--token=report-writer="+current).want(t, 1, "not found")
		})
	}
	t.Run("scale takes its token with the request only", func(t *testing.T) {
		lease := i.lease(t)
		n := "-n=" + lease.Namespace
		token := i.succeeds(t, "acquire", "report-writer", n, "--identity=me")
		i.report(t, lease, "daily", token)
		args := []string{"patch", "report/daily", n, "--subresource=scale", "-p={\"spec\":{\"replicas\":7}}", "--token=" + token}
		i.call(t, append(args, "--carrier=annotation")...).want(t, 1, "a Scale has no annotations")
		if out := i.succeeds(t, append(args, "-o=yaml")...); !strings.Contains(out, "replicas: 7") {
			t.Errorf("scale: want the Scale, got\n%s", out)
		}
	})
	t.Run("annotate changes nothing that is there without being told to", func(t *testing.T) {
		lease := i.lease(t)
		n := "-n=" + lease.Namespace
		token := i.succeeds(t, "acquire", "report-writer", n, "--identity=me")
		i.report(t, lease, "daily", token)
		i.succeeds(t, "annotate", "report/daily", "a=1", n, "--token="+token)
		i.call(t, "annotate", "report/daily", "a=2", n, "--token="+token).want(t, 1, "has the value \"1\" already: add --overwrite")
		i.succeeds(t, "annotate", "report/daily", "a=2", "b-", n, "--token="+token, "--overwrite")
	})
}

func tokensFindTheirLease(t *testing.T, i *installation) {
	lease := i.lease(t)
	n := "-n=" + lease.Namespace
	token := i.succeeds(t, "acquire", "report-writer", n, "--identity=me")
	i.report(t, lease, "daily", token)
	write := []string{"annotate", "report/daily", n}
	i.succeeds(t, append(write, "--token="+token)...)
	inRun := with{env: map[string]string{"FENCEDLEASE_TOKEN": token, "FENCEDLEASE_NAME": "report-writer"}}
	i.as(t.Context(), t, inRun, write...).want(t, 0, "")

	other := env.NewLease(lease.Namespace, "auditor")
	must(t, i.admin.Create(t.Context(), other))
	eventually(t, "the second lease guards", func() bool { return readyFor(i.read(t, other)) })
	i.call(t, append(write, "--token="+token)...).want(t, 1, "is guarded by several FencedLeases (auditor, report-writer)")
	i.call(t, append(write, "--token=report-writer="+token)...).want(t, 2, "refused by the fence (MissingToken): FencedLease "+lease.Namespace+"/auditor")
	second := i.succeeds(t, "acquire", "auditor", n, "--identity=me")
	for _, carrier := range []string{"request", "annotation"} {
		i.succeeds(t, append(write, "--carrier="+carrier, "--token=report-writer="+token, "--token=auditor="+second)...)
	}
	must(t, i.admin.Delete(t.Context(), other))
	must(t, i.admin.Delete(t.Context(), lease))
	i.call(t, append(write, "--token="+token)...).want(t, 1, "no FencedLease that you may see guards reports.example.com/daily")
}

func leasesAreNoTargets(t *testing.T, i *installation) {
	lease := i.lease(t)
	i.call(t, "delete", "flease/report-writer", "-n="+lease.Namespace, "--token=1").want(t, 1, "is itself a FencedLease")
	i.read(t, lease)
}

func noServer(t *testing.T, i *installation) {
	config := i.cluster.Config()
	config.Host = "https://127.0.0.1:1"
	for _, args := range [][]string{
		{"get"}, {"describe", "a"}, {"acquire", "a", "--identity=me"}, {"release", "a", "--yes"}, {"rbac", "a", "--serviceaccount=b"},
		{"explain", "report/daily"}, {"annotate", "report/daily", "--token=1"}, {"run", "a", "--", "true"},
	} {
		if out := i.as(t.Context(), t, with{config: config}, args...).want(t, 1, "connection refused"); out != "" {
			t.Errorf("%v: want nothing on standard output, got %q", args, out)
		}
	}
}

// kubectlFindsIt runs the real kubectl, which finds the plugin and its completion by their names on the PATH.
func kubectlFindsIt(t *testing.T, i *installation) {
	lease := i.lease(t)
	bin := plugin(t)
	must(t, os.WriteFile(filepath.Join(bin, "kubectl_complete-fencedlease"), []byte(i.succeeds(t, "completion", "kubectl")), 0o700))
	kubectl := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), i.cluster.Binary("kubectl"), args...)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+t.TempDir(), "KUBECONFIG="+i.kubeconfig(t, i.cluster.Config()))
		out, err := cmd.Output()
		return string(out), err
	}
	out, err := kubectl("fencedlease", "get", "-n", lease.Namespace)
	must(t, err)
	if !strings.Contains(out, "report-writer") {
		t.Errorf("kubectl fencedlease get: got\n%s", out)
	}
	i.report(t, lease, "daily", i.succeeds(t, "acquire", "report-writer", "-n="+lease.Namespace, "--identity=me"))
	out, err = kubectl("fencedlease", "explain", "report/daily", "-n", lease.Namespace)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, "MissingToken") {
		t.Errorf("kubectl fencedlease explain: want exit code 2, got %v\n%s", err, out)
	}
	for args, want := range map[string]string{
		"fencedlease descr": "describe", "fencedlease describe -n " + lease.Namespace + " r": "report-writer", "fencedlease rbac --carrier ": "credential",
	} {
		out, err = kubectl(append([]string{"__complete"}, strings.Split(args, " ")...)...)
		must(t, err)
		if !strings.Contains(out, want) {
			t.Errorf("complete %q: want %q in it, got\n%s", args, want, out)
		}
	}
}

// plugin builds the plugin and returns its folder.
func plugin(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "../../cmd/kubectl-fencedlease")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	return bin
}
