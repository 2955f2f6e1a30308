//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader"
	fencedclient "github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/test/env"
	byhand "github.com/fencedlease/fencedlease/test/env/operator"
)

// victimVariable makes the test binary a leader that is to be killed. Its value is the path of a kubeconfig.
const (
	victimVariable      = "FENCEDLEASE_TEST_VICTIM"
	victimLeaseVariable = "FENCEDLEASE_TEST_VICTIM_LEASE"
	victimNameVariable  = "FENCEDLEASE_TEST_VICTIM_NAME"
	// victimReportVariable names an object that the leader writes all the time.
	victimReportVariable = "FENCEDLEASE_TEST_VICTIM_REPORT"
)

// beVictim leads until it is killed, and says its token when it does.
func beVictim(kubeconfig string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // this is a main function
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	elector, err := leader.New(leader.Options{Config: config, Namespace: namespace, Name: os.Getenv(victimLeaseVariable), Identity: cmp.Or(os.Getenv(victimNameVariable), "victim")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	err = elector.Run(ctx, func(ctx context.Context, term *leader.Term) error {
		fmt.Fprintln(os.Stdout, term.Token())
		if report := os.Getenv(victimReportVariable); report != "" {
			return writeOn(ctx, config, term, report)
		}
		<-ctx.Done()
		return nil
	})
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// writeOn writes the object until the term ends, and says how it went: "wrote", or "refused" with whether the term was still
// the lease's after that.
func writeOn(ctx context.Context, config *rest.Config, term *leader.Term, report string) error {
	c, err := env.Client(config)
	if err != nil {
		return err
	}
	g := &guarded{operator: &operator{Operator: &byhand.Operator{Client: c}, name: term.Info().Name}, report: report}
	for ctx.Err() == nil {
		err := g.writeIn(ctx, term.Client(c), term.Token().String())
		refusal, fenced := leader.Cause(err)
		switch {
		case err == nil:
			fmt.Fprintln(os.Stdout, "wrote", term.Token())
		case fenced && refusal.Type != fencedclient.TermEnded:
			lease := &v1alpha1.FencedLease{}
			if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: g.name}, lease); err != nil {
				continue
			}
			fmt.Fprintln(os.Stdout, "refused", term.Token(), refusal.Type, byhand.PossessionIn(lease) == possessionOf(term))
		}
	}
	return nil
}

// startVictim runs the test binary as a leader called name, and returns what it says line by line.
func startVictim(t *testing.T, kubeconfig, lease, name, report string) (*exec.Cmd, <-chan string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	victim := exec.CommandContext(t.Context(), self)
	victim.Env = append(os.Environ(), victimVariable+"="+kubeconfig, victimLeaseVariable+"="+lease, victimNameVariable+"="+name, victimReportVariable+"="+report)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100000)
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = victim.Process.Kill()
		<-read
		_ = victim.Wait() // it was killed
	})
	return victim, lines
}

// F-08 (kubernetes/client-go#1122): after the leader's process was killed the others did not take over.
func TestAFollowerLeadsAfterTheLeaderWasKilled(t *testing.T) {
	o := newLease(t)
	kubeconfig, err := server.WriteKubeconfig("victim-of-"+o.name, server.Config())
	if err != nil {
		t.Fatal(err)
	}
	victim, lines := startVictim(t, kubeconfig, o.name, "victim", "")
	first := <-lines
	held := o.Possession()
	equal(t, "token of the victim", held.Token, first)

	b := o.candidate("worker-b")
	b.waitsForHolder("victim")
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	second := b.leads()
	equal(t, "generation after the kill", held.Generation+1, second.Info().Generation)
	equal(t, "possession", possessionOf(second), o.Possession())
}
