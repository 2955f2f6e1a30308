//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fencedlease/fencedlease/pkg/leader"
)

// victimVariable makes the test binary a leader that is to be killed. Its value is the path of a kubeconfig.
const (
	victimVariable      = "FENCEDLEASE_TEST_VICTIM"
	victimLeaseVariable = "FENCEDLEASE_TEST_VICTIM_LEASE"
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
	elector, err := leader.New(leader.Options{Config: config, Namespace: namespace, Name: os.Getenv(victimLeaseVariable), Identity: "victim"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	err = elector.Run(ctx, func(ctx context.Context, term *leader.Term) error {
		fmt.Fprintln(os.Stdout, term.Token())
		<-ctx.Done()
		return nil
	})
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// F-08 (kubernetes/client-go#1122): after the leader's process was killed the others did not take over.
func TestAFollowerLeadsAfterTheLeaderWasKilled(t *testing.T) {
	o := newLease(t)
	kubeconfig, err := server.WriteKubeconfig("victim-of-"+o.name, server.Config())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	victim := exec.CommandContext(t.Context(), self)
	victim.Env = append(os.Environ(), victimVariable+"="+kubeconfig, victimLeaseVariable+"="+o.name)
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("read what the victim says: %v", err)
	}
	first := strings.TrimSpace(line)
	held := o.possession()
	equal(t, "token of the victim", held.Token, first)

	b := o.candidate("worker-b")
	b.waitsForHolder("victim")
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // it was killed
	second := b.leads()
	equal(t, "generation after the kill", held.Generation+1, second.Info().Generation)
	equal(t, "possession", possessionOf(second), o.possession())
}
