// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration && linux

package kubectl_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

// TestRun runs commands under leases, with the built plugin as a process of its own.
func TestRun(t *testing.T) {
	i := install(t, func(*installation) {})
	s := &runSuite{installation: i, bin: filepath.Join(plugin(t), "kubectl-fencedlease")}
	for name, test := range map[string]func(*testing.T, *runSuite){
		"the exit code is that of the command":                       exitCodes,
		"the command finds its term":                                 findsTerm,
		"every write of the command carries the token":               carriesToken,
		"signals reach the whole group (F-27)":                       signalsReachGroup,
		"the lease is released when the whole group has gone (F-27)": releasedAfterGroup,
		"a command is gone before others may lead (F-28)":            goneInTime,
		"a signal ends the waiting (F-29)":                           signalEndsWaiting,
		"who does not want to wait does not":                         noWaiting,
		"a lease that is lost ends the command":                      lossEndsCommand,
		"a plugin that is killed leaves no command behind":           killedPlugin,
		"a terminal belongs to the command":                          terminalIsTheCommands,
		"a plugin that was paused ends the command first":            pausedPlugin,
	} {
		t.Run(name, func(t *testing.T) { test(t, s) })
	}
}

type runSuite struct {
	*installation
	bin string
}

// child is a running plugin.
type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu          sync.Mutex
	out, errOut bytes.Buffer
}

type lockedWriter struct {
	c   *child
	buf *bytes.Buffer
}

func (w lockedWriter) Write(b []byte) (int, error) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.buf.Write(b)
}

func (s *runSuite) start(t *testing.T, lease *v1alpha1.FencedLease, w with, args ...string) *child {
	t.Helper()
	return s.prepare(t, lease, w, args...).begin()
}

// prepare returns the plugin before it is started.
func (s *runSuite) prepare(t *testing.T, lease *v1alpha1.FencedLease, w with, args ...string) *child {
	t.Helper()
	if w.config == nil {
		w.config = s.cluster.Config()
	}
	args = append([]string{"run", lease.Name, "-n=" + lease.Namespace, "--cache-dir=" + s.cache}, args...)
	c := &child{t: t, cmd: exec.Command(s.bin, args...), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig(t, w.config), "HOME="+t.TempDir(), "TMPDIR="+t.TempDir(),
		"PATH="+filepath.Dir(s.cluster.Binary("kubectl"))+":"+os.Getenv("PATH"))
	c.cmd.Stdout, c.cmd.Stderr = lockedWriter{c, &c.out}, lockedWriter{c, &c.errOut}
	c.cmd.WaitDelay = time.Second
	return c
}

// begin starts the plugin. It is killed at the end of the test if it has not ended.
func (c *child) begin() *child {
	c.t.Helper()
	must(c.t, c.cmd.Start())
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait()
	}()
	c.t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.done
	})
	return c
}

func (c *child) said() (out, errOut string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String(), c.errOut.String()
}

// awaits returns when the command has printed a text.
func (c *child) awaits(text string) *child {
	c.t.Helper()
	eventually(c.t, "the command says "+text, func() bool {
		select {
		case <-c.done:
			out, errOut := c.said()
			if !strings.Contains(out, text) {
				c.t.Fatalf("the plugin has ended before the command said %q:\n%s%s", text, out, errOut)
			}
		default:
		}
		out, _ := c.said()
		return strings.Contains(out, text)
	})
	return c
}

func (c *child) signal(s os.Signal) *child {
	c.t.Helper()
	must(c.t, c.cmd.Process.Signal(s))
	return c
}

// ends waits for the end and checks the exit code, and that something was said about it.
func (c *child) ends(code int, said string) *child {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(time.Minute):
		c.t.Fatal("the plugin does not end")
	}
	out, errOut := c.said()
	if got := c.cmd.ProcessState.ExitCode(); got != code || !strings.Contains(errOut, said) {
		c.t.Fatalf("want exit code %d and on standard error %q, got exit code %d\n%s--- standard error\n%s", code, said, got, out, errOut)
	}
	return c
}

// pid reads a number that the command has printed after a word.
func (c *child) pid(word string) int {
	c.t.Helper()
	out, _ := c.said()
	_, rest, _ := strings.Cut(out, word+" ")
	line, _, _ := strings.Cut(rest, "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	must(c.t, err)
	return pid
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func (s *runSuite) holder(t *testing.T, lease *v1alpha1.FencedLease) string {
	t.Helper()
	return *s.read(t, lease).Status.HolderIdentity
}

func exitCodes(t *testing.T, s *runSuite) {
	lease := s.lease(t)
	for _, c := range []struct {
		code    int
		said    string
		command []string
	}{
		{0, "", []string{"true"}},
		{7, "", []string{"sh", "-c", "exit 7"}},
		{137, "", []string{"sh", "-c", "kill -9 $$"}},
		{127, "cannot run no-such-command", []string{"no-such-command"}},
		{127, "cannot run ./no/such/command", []string{"./no/such/command"}},
		{126, "cannot run /etc/hostname", []string{"/etc/hostname"}},
	} {
		s.start(t, lease, with{}, append([]string{"--"}, c.command...)...).ends(c.code, c.said)
		if holder := s.holder(t, lease); holder != "" {
			t.Errorf("%v: the lease has to be released, %q holds it", c.command, holder)
		}
	}
	missing := env.NewLease(lease.Namespace, "nothing")
	s.start(t, missing, with{}, "--", "true").ends(1, "not found: see which there are with")
}

func findsTerm(t *testing.T, s *runSuite) {
	lease := s.lease(t)
	c := s.start(t, lease, with{}, "--identity=me", "--", "sh", "-c", "env | grep ^FENCEDLEASE_; echo KUBECONFIG $KUBECONFIG; stat -c %a $KUBECONFIG; stat -c %a $(dirname $KUBECONFIG)").ends(0, "")
	out, _ := c.said()
	status := s.read(t, lease).Status
	for _, want := range []string{
		"FENCEDLEASE_TOKEN=" + *status.Token, "FENCEDLEASE_TERM=" + *status.Term, "FENCEDLEASE_HOLDER=me", "FENCEDLEASE_NAME=report-writer",
		"FENCEDLEASE_NAMESPACE=" + lease.Namespace, "FENCEDLEASE_GENERATION=" + strconv.FormatInt(*status.Generation, 10), "600\n700\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("environment: want %q in it, got\n%s", want, out)
		}
	}
	_, rest, _ := strings.Cut(out, "KUBECONFIG ")
	path, _, _ := strings.Cut(rest, "\n")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the kubeconfig of the term has to be removed, stat says %v", err)
	}
}

func carriesToken(t *testing.T, s *runSuite) {
	for _, carrier := range []string{"request", "credential"} {
		t.Run(carrier, func(t *testing.T) {
			lease := s.lease(t)
			config, err := s.cluster.ServiceAccount(t.Context(), lease.Namespace, "worker")
			must(t, err)
			roles := s.succeeds(t, "rbac", "report-writer", "-n="+lease.Namespace, "--serviceaccount=worker", "--carrier="+carrier)
			_, err = s.cluster.KubectlAs(t.Context(), s.cluster.Config(), roles, "apply", "-f", "-")
			must(t, err)
			kept := t.TempDir()
			file := filepath.Join(kept, "report.yaml")
			write(t, file, manifest(t, lease, "daily", "by a script"))
			script := "cp -L $(dirname $KUBECONFIG)/* " + kept + "; sed -i s:$(dirname $KUBECONFIG):" + kept + ": " + kept + "/kubeconfig; kubectl create -f " + file +
				" && kubectl patch report daily --subresource=status --type=merge -p '{\"status\":{\"phase\":\"x\"}}' && kubectl scale report daily --replicas=4 && echo started && read line"
			c := s.start(t, lease, with{config: config}, "--", "sh", "-c", script)
			c.ends(1, "") // standard input is empty, so that read fails
			out, _ := c.said()
			if !strings.Contains(out, "started") || s.value(t, lease, "daily") != "by a script" {
				t.Fatalf("the writes of the command have to land, got\n%s", out)
			}
			// The kubeconfig has outlived the term.
			late := exec.CommandContext(t.Context(), s.cluster.Binary("kubectl"), "--kubeconfig="+filepath.Join(kept, "kubeconfig"), "--cache-dir="+s.cache, "delete", "report", "daily")
			text, err := late.CombinedOutput()
			if err == nil || !strings.Contains(string(text), "Released") && !strings.Contains(string(text), "was released") {
				t.Errorf("a write after the term has ended: want a refusal, got %v\n%s", err, text)
			}
			if s.value(t, lease, "daily") != "by a script" {
				t.Error("a write after the term has ended has landed")
			}
		})
	}
}

func signalsReachGroup(t *testing.T, s *runSuite) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1} {
		t.Run(sig.String(), func(t *testing.T) {
			lease := s.lease(t)
			c := s.start(t, lease, with{}, "--", "sh", "-c", "sleep 600 & echo sleep $!; wait").awaits("sleep ")
			sleep := c.pid("sleep")
			c.signal(sig).ends(128+int(sig), "")
			if alive(sleep) {
				t.Error("a process of the group has survived")
			}
			if holder := s.holder(t, lease); holder != "" {
				t.Errorf("the lease has to be released, %q holds it", holder)
			}
		})
	}
}

func releasedAfterGroup(t *testing.T, s *runSuite) {
	lease := s.lease(t)
	// The command takes its time to end, and renewals go on while it does.
	slow := `trap 'sleep 1; echo bye; exit 5' TERM; echo started; while :; do sleep 0.05; done`
	c := s.start(t, lease, with{}, "--", "sh", "-c", slow).awaits("started").signal(syscall.SIGTERM)
	eventually(t, "the command has ended", func() bool {
		holder := s.holder(t, lease) // read before what the command has said: it is released after that
		out, _ := c.said()
		if holder == "" && !strings.Contains(out, "bye") {
			t.Fatal("the lease was released before the command had ended")
		}
		return strings.Contains(out, "bye")
	})
	c.ends(5, "")

	// What the command leaves behind is ended before the release, also if it ignores the signal to end.
	c = s.start(t, lease, with{}, "--grace-period=300ms", "--", "sh", "-c", `(trap '' TERM; exec sleep 600) & echo sleep $!; exit 0`)
	c.ends(0, "left processes behind in its group")
	if alive(c.pid("sleep")) {
		t.Error("a process of the group has survived")
	}
	if holder := s.holder(t, lease); holder != "" {
		t.Errorf("the lease has to be released, %q holds it", holder)
	}
}

func short(lease *v1alpha1.FencedLease) { lease.Spec.LeaseDurationSeconds = 3 }

func goneInTime(t *testing.T, s *runSuite) {
	// The command notes when it lives and when it is told to end, so that no delay of this test counts.
	const live = `echo pid $$; while :; do date +%s.%N >>"$0.alive"; sleep 0.02; done`
	for _, c := range []struct {
		name, script string
		code         int
	}{
		{"a command that minds the signal", live, 143},
		{"a command that ignores it", `trap 'date +%s.%N >>"$0.told"' TERM; ` + live, 137},
	} {
		t.Run(c.name, func(t *testing.T) {
			lease := s.lease(t, short)
			notes := filepath.Join(t.TempDir(), "notes")
			run := s.start(t, lease, with{}, "--", "sh", "-c", c.script, notes).awaits("pid ")
			pid := run.pid("pid")
			generation := *s.read(t, lease).Status.Generation
			eventually(t, "the lease is renewed", func() bool {
				now := s.read(t, lease).Status
				return now.RenewTime.After(now.AcquireTime.Time)
			})
			must(t, s.cluster.KillAPIServer(0))
			run.ends(c.code, "has ended: the API server confirmed no renewal before the renew deadline")
			if alive(pid) {
				t.Error("the command has survived")
			}
			must(t, s.cluster.StartAPIServer(t.Context(), 0))
			after := &v1alpha1.FencedLease{}
			eventually(t, "the API server is back", func() bool { return s.admin.Get(t.Context(), client.ObjectKeyFromObject(lease), after) == nil })
			if *after.Status.Generation != generation {
				t.Fatal("somebody else has acquired the lease: nothing can be said about the time")
			}
			// All clocks are this machine's. The renewal that the store has was sent at renewTime; the last confirmed one was not
			// sent later.
			renewed := after.Status.RenewTime.Time
			if last := noted(t, notes+".alive", -1); !last.Before(renewed.Add(3 * time.Second)) {
				t.Errorf("the command lived %s after others could have acquired the lease", last.Sub(renewed.Add(3*time.Second)))
			}
			if c.code == 137 {
				if told := noted(t, notes+".told", 0); told.Before(renewed.Add(time.Second)) || !told.Before(renewed.Add(3*time.Second)) {
					t.Errorf("the command was told to end at %s, the lease was renewed at %s for 3s", told, renewed)
				}
			}
		})
	}
}

// noted reads one of the times that a command has noted, counted from the end if the index is negative.
func noted(t *testing.T, path string, index int) time.Time {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	lines := strings.Fields(string(text))
	if index < 0 {
		index += len(lines)
	}
	seconds, err := strconv.ParseFloat(lines[index], 64)
	must(t, err)
	return time.UnixMicro(int64(seconds * 1e6))
}

func signalEndsWaiting(t *testing.T, s *runSuite) {
	lease := s.lease(t)
	token := s.succeeds(t, "acquire", "report-writer", "-n="+lease.Namespace, "--identity=other")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		c := s.start(t, lease, with{}, "--", "sh", "-c", "echo started")
		eventually(t, "run waits", func() bool {
			_, errOut := c.said()
			return strings.Contains(errOut, "Waiting: FencedLease "+lease.Namespace+"/report-writer: \"other\" holds the lease")
		})
		c.signal(sig).ends(128+int(sig), "")
		if out, _ := c.said(); out != "" {
			t.Errorf("%s: the command must not run, got %q", sig, out)
		}
	}
	status := s.read(t, lease).Status
	if *status.Token != token || *status.HolderIdentity != "other" {
		t.Errorf("the lease must stay as it was, got %q under %s", *status.HolderIdentity, *status.Token)
	}
}

func noWaiting(t *testing.T, s *runSuite) {
	lease := s.lease(t)
	s.succeeds(t, "acquire", "report-writer", "-n="+lease.Namespace, "--identity=other")
	s.start(t, lease, with{}, "--wait=false", "--", "true").ends(2, "\"other\" holds the lease")
	s.start(t, lease, with{}, "--timeout=300ms", "--", "true").ends(2, "this has not changed within 300ms")
	if holder := s.holder(t, lease); holder != "other" {
		t.Errorf("holder: want other, got %q", holder)
	}
}

func lossEndsCommand(t *testing.T, s *runSuite) {
	lose := map[string]func(*testing.T, *v1alpha1.FencedLease){
		"taken over": func(t *testing.T, lease *v1alpha1.FencedLease) {
			eventually(t, "another takes the lease over", func() bool { return env.Acquire(t.Context(), s.admin, s.read(t, lease), "other") == nil })
		},
		"released by hand": func(t *testing.T, lease *v1alpha1.FencedLease) {
			s.succeeds(t, "release", "report-writer", "-n="+lease.Namespace, "--yes")
		},
		"deleted": func(t *testing.T, lease *v1alpha1.FencedLease) { must(t, s.admin.Delete(t.Context(), lease)) },
	}
	for name, ending := range lose {
		t.Run(name, func(t *testing.T) {
			lease := s.lease(t, short)
			c := s.start(t, lease, with{}, "--", "sh", "-c", "echo started; exec sleep 600").awaits("started")
			ending(t, lease)
			c.ends(143, "has ended: ")
		})
	}
	t.Run("a command that ends well all the same", func(t *testing.T) {
		lease := s.lease(t, short)
		c := s.start(t, lease, with{}, "--", "sh", "-c", "trap 'exit 0' TERM; echo started; while :; do sleep 0.05; done").awaits("started")
		lose["taken over"](t, lease)
		c.ends(1, "\"other\" holds the lease under generation")
	})
}

func killedPlugin(t *testing.T, s *runSuite) {
	lease := s.lease(t)
	c := s.start(t, lease, with{}, "--", "sh", "-c", "echo pid $$; exec sleep 600").awaits("pid ")
	pid := c.pid("pid")
	must(t, c.cmd.Process.Kill())
	eventually(t, "the command has ended", func() bool { return !running(pid) })
}

// running reports whether a process runs. One that has ended and that nobody has reaped does not.
func running(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func pausedPlugin(t *testing.T, s *runSuite) {
	lease := s.lease(t, func(l *v1alpha1.FencedLease) { l.Spec.LeaseDurationSeconds = 1 })
	c := s.start(t, lease, with{}, "--", "sh", "-c", "trap '' TERM; echo pid $$; while :; do sleep 0.02; done").awaits("pid ")
	c.signal(syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.as(ctx, t, with{}, "acquire", "report-writer", "-n="+lease.Namespace, "--identity=heir", "--wait").want(t, 0, "")
	c.signal(syscall.SIGCONT).ends(137, "has ended: ")
	if holder := s.holder(t, lease); holder != "heir" {
		t.Errorf("holder: want heir, got %q", holder)
	}
}
