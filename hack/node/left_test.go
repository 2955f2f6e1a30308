// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNothingIsLeft starts the cluster with a pod, ends it in all ways, and compares the machine with what it was before.
// It needs root, and is run by make test-node.
func TestNothingIsLeft(t *testing.T) {
	p, err := thePlace()
	if err != nil {
		t.Fatal(err)
	}
	// Ends what an earlier run has left. Compared is with a machine on which no cluster has run since.
	node(t, "down").mustRun(t)
	before := machine(t)
	for _, line := range before {
		if strings.Contains(line, groupName) {
			t.Errorf("left by an earlier run: %s", line)
		}
	}

	t.Run("it was only checked whether the machine can hold it", func(t *testing.T) {
		node(t, "check").mustRun(t)
		same(t, before)
	})
	for _, c := range []struct {
		name string
		// end ends the cluster that up has started. Afterwards nothing may be left.
		up  []string
		end func(t *testing.T)
	}{
		{name: "ended in order", end: func(t *testing.T) { node(t, "down").mustRun(t) }},
		{name: "ended twice", end: func(t *testing.T) { node(t, "down").mustRun(t); node(t, "down").mustRun(t) }},
		{name: "the keeper was killed", end: func(t *testing.T) { p.killRecorded(t, "keeper"); node(t, "down").mustRun(t) }},
		{name: "the first process was killed", end: func(t *testing.T) { p.killRecorded(t, "init"); p.awaitEnd(t) }},
		{name: "the keeper was killed, and the next start cleans", end: func(t *testing.T) {
			p.killRecorded(t, "keeper")
			node(t, "up").mustRun(t)
			node(t, "down").mustRun(t)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			node(t, "up").mustRun(t)
			runPod(t)
			c.end(t)
			same(t, before)
		})
	}

	t.Run("the owner was killed", func(t *testing.T) {
		owner := exec.CommandContext(t.Context(), "sleep", "600")
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		node(t, "up", "-while", strconv.Itoa(owner.Process.Pid)).mustRun(t)
		runPod(t)
		if err := owner.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = owner.Wait()
		p.awaitEnd(t)
		same(t, before)
	})

	for name, s := range map[string]syscall.Signal{"interrupted": syscall.SIGINT, "killed": syscall.SIGKILL} {
		t.Run("the start was "+name, func(t *testing.T) {
			// At several moments of the start.
			for _, file := range []string{"init.pid", "kubelet.kubeconfig", "pids/kube-apiserver", "pids/kubelet"} {
				c := node(t, "up")
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				eventually(t, file, func() bool { _, err := os.Stat(p.file(file)); return err == nil })
				if err := c.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
				if err := c.Wait(); err == nil {
					t.Errorf("%s: the start went on", file)
				}
				if s == syscall.SIGKILL {
					node(t, "down").mustRun(t)
				}
				same(t, before)
			}
		})
	}
}

type command struct{ *exec.Cmd }

func node(t *testing.T, args ...string) command {
	t.Helper()
	c := exec.CommandContext(t.Context(), "./node.sh", args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s: %s", c, out.String())
		}
	})
	return command{c}
}

func (c command) mustRun(t *testing.T) {
	t.Helper()
	if err := c.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", c, err, c.Stdout)
	}
}

// runPod runs a pod with volumes, so that there are shims, mounts, network interfaces and control groups.
func runPod(t *testing.T) {
	t.Helper()
	c := node(t, "exec", "bash", "-c", `k="$(../controlplane/build.sh)/kubectl"; "$k" apply -f - && "$k" wait --for=condition=Ready pod/one --timeout=60s`)
	c.Stdin = strings.NewReader(`
apiVersion: v1
kind: Pod
metadata: {name: one, namespace: default}
spec:
  containers:
  - {name: one, image: "` + pauseImage + `", imagePullPolicy: Never, volumeMounts: [{name: memory, mountPath: /memory}]}
  volumes: [{name: memory, emptyDir: {medium: Memory}}]
`)
	c.mustRun(t)
}

func (p place) killRecorded(t *testing.T, role string) {
	t.Helper()
	i, running := p.recorded(role)
	if !running {
		t.Fatalf("no %s runs", role)
	}
	if err := i.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !i.await(10 * time.Second) {
		t.Fatalf("%s does not end", role)
	}
}

func (p place) awaitEnd(t *testing.T) {
	t.Helper()
	eventually(t, "the end", func() bool { _, err := os.Stat(string(p)); return errors.Is(err, fs.ErrNotExist) })
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !check() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not in time", what)
		case <-tick.C:
		}
	}
}

// machine returns what a cluster could leave behind, a line each.
func machine(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	add := func(kind, name string) { found[kind+" "+name] = true }
	read := func(name string) string {
		data, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return string(data)
	}
	for line := range strings.Lines(read("/proc/self/mounts")) {
		add("mount", strings.TrimSpace(line))
	}
	for line := range strings.Lines(read("/proc/self/net/dev")) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		add("interface", name)
	}
	add("setting", "ip_forward "+read("/proc/sys/net/ipv4/ip_forward"))
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	namespaces, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range namespaces {
		if other, err := os.Readlink(name); err == nil && other != own && !ended(filepath.Dir(filepath.Dir(name))) {
			add("process of another namespace", other)
		}
	}
	for line := range strings.Lines(output(t, "ps", "-eo", "args")) {
		if strings.HasPrefix(line, "/proc/self/exe ") {
			add("process", strings.TrimSpace(line))
		}
	}
	for _, root := range append([]string{groupRoot + "/*/fencedlease*", groupRoot + "/*/kubepods*", groupRoot + "/*/k8s.io*"},
		"/run/*", "/run/netns/*", "/run/containerd/*", "/var/lib/*", "/var/lib/kubelet/*", "/var/lib/cni/*", "/var/log/*", "/opt/*", "/etc/cni*",
		"/usr/libexec/kubernetes/*/*") {
		names, err := filepath.Glob(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			add("file", name)
		}
	}
	all := make([]string, 0, len(found))
	for line := range found {
		all = append(all, line)
	}
	slices.Sort(all)
	return all
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// same fails if something is there that was not.
// ended tells of a process by its folder in /proc whether it has ended: one of a keeper that was killed is there until the
// machine's first process takes notice of it.
func ended(folder string) bool {
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
	return strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
}

func same(t *testing.T, before []string) {
	t.Helper()
	for _, line := range machine(t) {
		if !slices.Contains(before, line) {
			t.Errorf("left: %s", line)
		}
	}
	if err := node(t, "status").Run(); err == nil || exitOf(err) != 3 {
		t.Errorf("status: %v", err)
	}
}

func exitOf(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}
