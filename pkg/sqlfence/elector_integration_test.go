//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/sqlfence"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/postgres"
)

// victimVariable makes the test binary a leader. Its value is the path of a kubeconfig.
const (
	victimVariable    = "FENCEDLEASE_TEST_VICTIM"
	victimDSNVariable = "FENCEDLEASE_TEST_VICTIM_DSN"
)

// beVictim leads, writes to the database once, and says how that went.
func beVictim(kubeconfig string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // this is a main function
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	db, err := sql.Open("pgx", os.Getenv(victimDSNVariable))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = db.Close() }()
	err = lead(ctx, config, "victim", func(_ context.Context, leading *leader.Term) error {
		fmt.Fprintln(os.Stdout, "leading", leading.Token())
		// Not by the context of the work: it ends with the term, and this write is one that nothing holds back.
		outcome, err := writeUnder(ctx, db, leading, "job-of-victim")
		refusal, _ := leader.Cause(err)
		fmt.Fprintf(os.Stdout, "wrote %q, refused %q\n", outcome.Result, refusal.Type)
		return err
	})
	fmt.Fprintln(os.Stderr, err)
	return 0
}

// lead runs work for one term.
func lead(ctx context.Context, config *rest.Config, identity string, work func(context.Context, *leader.Term) error) error {
	elector, err := leader.New(leader.Options{
		Config: config, Namespace: "default", Name: "report-writer", Identity: identity, ExitOnLoss: true,
	})
	if err != nil {
		return err
	}
	return elector.Run(ctx, work)
}

// writeUnder makes the change that tests make, under an elector's term.
func writeUnder(ctx context.Context, db *sql.DB, leading *leader.Term, operation string) (sqlfence.Outcome, error) {
	fence, err := sqlfence.New(db, leading, sqlfence.Options{Name: lease})
	if err != nil {
		return sqlfence.Outcome{}, err
	}
	return fence.Do(ctx, operation, write(&term{generation: leading.Token().Generation}, operation))
}

// cluster returns an API server with a lease of four seconds, whose floor is set, and its administrator's client.
func cluster(t *testing.T) (*env.Environment, client.Client) {
	t.Helper()
	e := env.StartT(t, env.Options{WithoutEndpoints: true})
	c, err := env.Client(e.Config())
	if err == nil {
		err = e.InstallCRDs(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	createLease(t, c, -1)
	return e, c
}

func createLease(t *testing.T, c client.Client, floor int64) {
	t.Helper()
	lease := env.NewLease("default", "report-writer", func(l *v1alpha1.FencedLease) { l.Spec.LeaseDurationSeconds = 4 })
	if err := c.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if err := env.SetFloor(t.Context(), c, lease, floor); err != nil {
		t.Fatal(err)
	}
}

// Two processes lead in turn on a real API server. The first stops with a transaction on its way to the database, and goes on
// when the second has written: the database refuses it.
func TestAPausedLeaderIsRefusedByTheDatabase(t *testing.T) {
	d := newDestination(t)
	e, _ := cluster(t)
	kubeconfig, err := e.WriteKubeconfig("victim", e.Config())
	d.must(err)
	proxy := d.proxy()
	hold := proxy.Hold(func(m postgres.Message) bool { return strings.HasPrefix(m.Statement, "begin") })

	self, err := os.Executable()
	d.must(err)
	victim := exec.CommandContext(t.Context(), self)
	victim.Env = append(os.Environ(), victimVariable+"="+kubeconfig, victimDSNVariable+"="+proxy.DSN(d.name))
	victim.Stderr = os.Stderr
	stdout, err := victim.StdoutPipe()
	d.must(err)
	d.must(victim.Start())
	said := bufio.NewScanner(stdout)
	if !said.Scan() || !strings.HasPrefix(said.Text(), "leading ") {
		t.Fatalf("the first leader said %q", said.Text())
	}
	<-hold.Entered()
	d.must(victim.Process.Signal(syscall.SIGSTOP))
	d.must(env.AwaitStopped(victim.Process.Pid))

	d.must(lead(t.Context(), e.Config(), "successor", func(ctx context.Context, leading *leader.Term) error {
		outcome, err := writeUnder(ctx, d.db, leading, "job-of-successor")
		equal(t, "generation of the successor", leading.Token().Generation, outcome.Generation)
		return err
	}))

	hold.Release()
	d.must(victim.Process.Signal(syscall.SIGCONT))
	if !said.Scan() || said.Text() != `wrote "", refused "StaleToken"` {
		t.Errorf("the first leader said %q", said.Text())
	}
	d.must(victim.Wait())
	history := d.history()
	if len(history) != 1 || history[0].Operation != "job-of-successor" {
		t.Errorf("history: %+v", history)
	}
}

// The lease is lost and made anew below the generations that the database has seen: no manager runs here that would know
// better. Raising spec.minGeneration as the refusal says lets the next term write.
func TestARestoredLeaseIsRaisedAboveTheDatabase(t *testing.T) {
	d := newDestination(t)
	e, c := cluster(t)
	under := func(identity, operation string) error {
		return lead(t.Context(), e.Config(), identity, func(ctx context.Context, leading *leader.Term) error {
			_, err := writeUnder(ctx, d.db, leading, operation)
			return err
		})
	}
	d.must(under("a", "one"))

	d.must(c.Delete(t.Context(), env.NewLease("default", "report-writer")))
	createLease(t, c, 0)
	err := under("b", "two")
	var refused *sqlfence.RefusedError
	if !errors.As(err, &refused) || refused.Type != fenced.StaleToken {
		t.Fatalf("want a refusal, got %v", err)
	}
	patch := fmt.Appendf(nil, `{"spec":{"minGeneration":%d}}`, refused.Stored.Generation)
	d.must(c.Patch(t.Context(), env.NewLease("default", "report-writer"), client.RawPatch(types.MergePatchType, patch)))
	d.must(under("c", "two"))
	equal(t, "operations", 2, len(d.history()))
}

// Leaders follow one another, each with the same job to do: it is done once, and each learns by whom.
func TestEveryLeaderInTurnLearnsThatTheJobIsDone(t *testing.T) {
	d := newDestination(t)
	e, _ := cluster(t)
	var first sqlfence.Outcome
	for i := range 3 {
		d.must(lead(t.Context(), e.Config(), fmt.Sprintf("leader-%d", i), func(ctx context.Context, leading *leader.Term) error {
			outcome, err := writeUnder(ctx, d.db, leading, "the-one-job")
			if i == 0 {
				first = outcome
			} else {
				equal(t, "outcome", sqlfence.Outcome{Record: first.Record, AlreadyApplied: true}, outcome)
			}
			return err
		}))
	}
	d.showsHistory(entry{"the-one-job", first.Generation})
}
