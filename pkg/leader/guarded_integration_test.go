//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/resourcelock"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// guarded is a lease of the whole product with one object that it guards.
type guarded struct {
	*operator
	cluster *env.Environment
	report  string
	// operations counts the writes of handOver, each of which is an operation of its own.
	operations int
}

// TestGuardedWrites needs the whole product, which its parts share.
func TestGuardedWrites(t *testing.T) {
	cluster := env.StartT(t, env.Options{})
	if err := cluster.InstallGuardedCRD(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := product.Install(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	manager, err := product.StartManager(t.Context(), cluster, testr.New(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.Stop() })
	for name, part := range map[string]func(*testing.T, *guarded){
		"F-01 a write after the loss":               writeAfterTheLoss,
		"F-02 paused leaders":                       pausedLeaders,
		"F-03 writes in the first line":             writesInTheFirstLine,
		"F-06 a write after a forced end":           writeAfterAForcedRelease,
		"an operation beside a credential":          operationBesideACredential,
		"handovers take less time than client-go's": handoverTimes,
	} {
		t.Run(name, func(t *testing.T) { part(t, newGuarded(t, cluster)) })
	}
}

func newGuarded(t *testing.T, cluster *env.Environment) *guarded {
	t.Helper()
	g := &guarded{operator: operatorOn(t, cluster), cluster: cluster, report: fmt.Sprintf("report-%d", leases.Add(1))}
	lease := env.NewLease(namespace, g.name, func(l *v1alpha1.FencedLease) {
		l.Spec.LeaseDurationSeconds = leaseSeconds
		for i := range l.Spec.Guards {
			l.Spec.Guards[i].ObjectSelector = selectorOf(g.report)
		}
	})
	if err := product.CreateLease(t.Context(), g.Client, lease); err != nil {
		t.Fatal(err)
	}
	return g
}

// on directs a candidate to the cluster of the product.
func (g *guarded) on(options *leader.Options) { options.Config = g.cluster.Config() }

// write sets the value of the object by a client that presents a token, and creates the object if it is missing.
func (g *guarded) write(c client.Client, value string) error {
	return g.writeIn(g.t.Context(), c, value)
}

func (g *guarded) writeIn(ctx context.Context, c client.Client, value string) error {
	err := c.Patch(ctx, g.named(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":"`+value+`"}}`)))
	if client.IgnoreNotFound(err) == nil && err != nil {
		report := env.NewReport(namespace, g.report, value)
		report.SetLabels(map[string]string{"report": g.report})
		return c.Create(ctx, report)
	}
	return err
}

// present sets the value by an annotation with the token and an operation, as any client can.
func (g *guarded) present(t token.Token, operation string) error {
	written, err := t.WithOperation(operation)
	if err != nil {
		return err
	}
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"value":%q}}`, v1alpha1.TokenKey(g.name), written, operation)
	return g.Patch(g.t.Context(), g.named(), client.RawPatch(types.MergePatchType, []byte(body)))
}

func (g *guarded) named() *unstructured.Unstructured { return env.NewReport(namespace, g.report, "") }

func (g *guarded) value() string {
	g.t.Helper()
	report := g.named()
	if err := g.Get(g.t.Context(), client.ObjectKeyFromObject(report), report); err != nil {
		g.t.Fatal(err)
	}
	value, _, _ := unstructured.NestedString(report.Object, "spec", "value")
	return value
}

// wrapped returns a client whose requests carry the term's token.
func (g *guarded) wrapped(term *leader.Term) client.Client {
	g.t.Helper()
	c, err := env.Client(term.Wrap(g.cluster.Config()))
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// F-01 (cilium/cilium#42920): work went on after the lead was lost.
func writeAfterTheLoss(t *testing.T, g *guarded) {
	a := g.newCandidate("worker-a", g.on)
	a.ignoring.Store(true)
	a.run()
	first := a.leads()
	carrying, stamping := g.wrapped(first), first.Client(g.Client)
	if err := errors.Join(g.write(stamping, "a"), g.write(carrying, "a-again")); err != nil {
		t.Fatalf("writes of the holder: %v", err)
	}
	g.Take("worker-b")
	_ = ended(t, first)
	b := g.Lease()
	current, err := token.Parse(*b.Status.Token)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.present(current, "b"); err != nil {
		t.Fatalf("write of the successor: %v", err)
	}
	for name, write := range map[string]func() error{
		"by the term's wrapped configuration": func() error { return g.write(carrying, "late") },
		"by the term's client":                func() error { return g.write(stamping, "late") },
	} {
		err := write()
		var end *fenced.EndedError
		if !errors.As(err, &end) || !errors.Is(err, fenced.ErrTermEnded) || !leader.IsFenced(err) {
			t.Errorf("late write %s: want an EndedError, got %v", name, err)
		}
		_ = lostTerm(t, err)
	}
	err = g.present(first.Token(), "late")
	refusal, is := leader.Cause(err)
	if !is || !leader.IsFenced(err) {
		t.Errorf("late write by a plain client: want a refusal by the fence, got %v", err)
	}
	equal(t, "cause", "StaleToken", string(refusal.Type))
	equal(t, "value", "b", g.value())

	// The process leads again when its old work has returned, and the old term's clients stay refused (F-09).
	a.finish <- nil
	second := a.leads()
	if err := g.write(second.Client(g.Client), "a-second"); err != nil {
		t.Errorf("write of the second term: %v", err)
	}
	if err := g.write(carrying, "late"); !errors.Is(err, fenced.ErrTermEnded) {
		t.Errorf("write of the first term while the process leads again: want %v, got %v", fenced.ErrTermEnded, err)
	}
	equal(t, "value", "a-second", g.value())
	a.finish <- nil
}

// F-02 (openshift/origin#7845): under CPU starvation the lead moved back and forth, and standbys were active together. Here
// leaders with the shortest lease are stopped and continued as they are.
func pausedLeaders(t *testing.T, g *guarded) {
	const handovers = 12
	g.MustPatchLease(`{"spec":{"leaseDurationSeconds":1}}`)
	kubeconfig, err := g.cluster.WriteKubeconfig("leaders-of-"+g.name, g.cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	leaders := map[string]*exec.Cmd{}
	said := make(chan [2]string, 100000)
	var readers sync.WaitGroup
	t.Cleanup(readers.Wait)
	for _, name := range []string{"worker-a", "worker-b"} {
		victim, lines := startVictim(t, kubeconfig, g.name, name, g.report)
		leaders[name] = victim
		readers.Go(func() {
			for line := range lines {
				said <- [2]string{name, line}
			}
		})
	}
	var committed, before int64 // generations of accepted writes
	var handed, writes, refused, until int
	stopped := ""
	expired := time.After(3 * timeout)
	for handed < handovers {
		var name, line string
		select {
		case <-expired:
			t.Fatalf("timed out after %d handovers", handed)
		case s := <-said:
			name, line = s[0], s[1]
		}
		words := strings.Fields(line)
		if len(words) < 2 {
			continue // it began to lead
		}
		presented := mustToken(t, words[1])
		if words[0] == "refused" {
			refused++
			if words[3] == "true" {
				t.Errorf("a write was refused while its term was current: %s", line)
			}
			continue
		}
		writes++
		// What two processes say arrives in any order, but one that was stopped says nothing new.
		if presented.Generation <= before || name == stopped {
			continue
		}
		if until--; until > 0 {
			continue
		}
		until = 1 + rand.IntN(40)
		if stopped != "" {
			// The other one leads and has written: what the stopped one sends from now on is too late.
			if err := leaders[stopped].Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			handed++
		}
		before, stopped = presented.Generation, name
		if err := leaders[name].Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		// Read from the API server: the mark is that of the last accepted write, and never falls.
		mark := g.mark()
		if mark.Generation < committed {
			t.Errorf("the mark fell from generation %d to %d", committed, mark.Generation)
		}
		committed = mark.Generation
	}
	t.Logf("%d handovers, %d accepted writes, %d refused", handed, writes, refused)
}

// mark returns the token of the last accepted write.
func (g *guarded) mark() token.Token {
	g.t.Helper()
	report := g.named()
	if err := g.Get(g.t.Context(), client.ObjectKeyFromObject(report), report); err != nil {
		g.t.Fatal(err)
	}
	return mustToken(g.t, report.GetAnnotations()[v1alpha1.TokenKey(g.name)])
}

func mustToken(t *testing.T, text string) token.Token {
	t.Helper()
	parsed, err := token.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// F-06: work that does not return.
func writeAfterAForcedRelease(t *testing.T, g *guarded) {
	a := g.newCandidate("worker-a", g.on, func(options *leader.Options) { options.ReleaseTimeout = time.Second })
	a.ignoring.Store(true)
	a.run()
	term := a.leads()
	if err := g.write(term.Client(g.Client), "a"); err != nil {
		t.Fatal(err)
	}
	a.cancel()
	if err := g.write(g.wrapped(term), "draining"); err != nil {
		t.Errorf("write of work that drains: %v", err)
	}
	if err := a.returns(); !errors.Is(err, leader.ErrWorkRunning) {
		t.Errorf("Run: want %v, got %v", leader.ErrWorkRunning, err)
	}
	if err := g.write(term.Client(g.Client), "late"); !errors.Is(err, fenced.ErrTermEnded) {
		t.Errorf("write after the release: want %v, got %v", fenced.ErrTermEnded, err)
	}
	refusal, is := leader.Cause(g.present(term.Token(), "late"))
	if !is {
		t.Error("a plain write after the release is no refusal by the fence")
	}
	equal(t, "cause", "Released", string(refusal.Type))
	equal(t, "value", "draining", g.value())
	a.finish <- nil
}

// F-03 (vmware/pinniped#796): the lock was held in the API and the process did not know it.
func writesInTheFirstLine(t *testing.T, g *guarded) {
	const handovers = 200
	type result struct {
		info leader.Info
		err  error
	}
	results := make(chan result)
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	defer cancel()
	ended := make(chan struct{}, 2)
	for _, identity := range []string{"worker-a", "worker-b"} {
		elector, err := leader.New(leader.Options{Config: g.cluster.Config(), Namespace: namespace, Name: g.name, Identity: identity})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				_ = elector.Run(ctx, func(_ context.Context, term *leader.Term) error {
					err := g.write(term.Client(g.Client), term.Token().String())
					results <- result{term.Info(), err}
					return nil
				})
			}
		}()
	}
	holders := map[string]int{}
	var last int64
	for i := range handovers {
		r := <-results
		if r.err != nil {
			t.Fatalf("first write of handover %d: %v", i, r.err)
		}
		if last != 0 {
			equal(t, "generation", last+1, r.info.Generation)
		}
		last = r.info.Generation
		holders[r.info.Holder]++
	}
	cancel()
	for n := 0; n < 2; {
		select {
		case <-ended:
			n++
		case <-results:
		}
	}
	t.Logf("terms by holder: %v", holders)
	equal(t, "holders", 2, len(holders))
}

// handoverTimes compares how long it takes from a release to the next leader's first accepted guarded write with what
// client-go's elector over pkg/resourcelock needs.
func handoverTimes(t *testing.T, g *guarded) {
	const handovers = 24
	g.MustPatchLease(`{"spec":{"leaseDurationSeconds":15}}`) // as client-go's elector assumes below
	watching := g.handOver(t, handovers, func(identity string, began func(token.Token)) contender {
		c := g.candidate(identity, g.on)
		go func() {
			for term := range c.started {
				began(term.Token())
			}
		}()
		return contender{
			settled: func() {
				_ = c.waits("the holder", func(err error) bool { return errors.As(err, new(*leader.HeldError)) })
			},
			stop: func() {
				c.cancel()
				_ = c.returns()
				close(c.started)
			},
		}
	})
	polling := g.handOver(t, handovers, func(identity string, began func(token.Token)) contender {
		lock, err := resourcelock.New(g.cluster.Config(), namespace, g.name, identity, resourcelock.Options{})
		if err != nil {
			t.Fatal(err)
		}
		// The durations are those of the core components and of controller-runtime.
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, Name: g.name, ReleaseOnCancel: true,
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {
					if t, leads := lock.Token(); leads {
						began(t)
					}
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
		done := make(chan struct{})
		go func() { defer close(done); elector.Run(ctx) }()
		return contender{
			// The holder's renewals and the follower's polls have no common phase, so this is a fair moment in the follower's
			// pause.
			settled: func() {
				renewed := g.Lease().Status.RenewTime
				eventually(t, "the holder renews", func() bool { return !g.Lease().Status.RenewTime.Equal(renewed) })
			},
			stop: func() { cancel(); <-done },
		}
	})
	median := func(durations []time.Duration) time.Duration {
		slices.Sort(durations)
		return durations[len(durations)/2]
	}
	w, p := median(watching), median(polling)
	t.Logf("from a release to the next leader's first accepted guarded write, %d handovers each: median %s (%s to %s) on watch, %s (%s to %s) with client-go's elector",
		handovers, w, watching[0], watching[handovers-1], p, polling[0], polling[handovers-1])
	if w >= p {
		t.Errorf("the median of %s is not below client-go's %s", w, p)
	}
}

// contender is an elector of a handover.
type contender struct {
	// settled returns when the elector follows the present holder.
	settled func()
	// stop releases the lease and returns when the elector has ended.
	stop func()
}

// handOver alternates two electors and returns how long each handover took. Start runs an elector that calls began when it
// leads.
func (g *guarded) handOver(t *testing.T, handovers int, start func(identity string, began func(token.Token)) contender) []time.Duration {
	t.Helper()
	wrote := make(chan error, 1)
	holder := start("worker-0", func(presented token.Token) { wrote <- g.prepare(presented) })
	if err := <-wrote; err != nil {
		t.Fatalf("write the object: %v", err)
	}
	var took []time.Duration
	for i := range handovers {
		next := start(fmt.Sprintf("worker-%d", i+1), func(presented token.Token) {
			g.operations++
			wrote <- g.present(presented, fmt.Sprintf("op-%d", g.operations))
		})
		next.settled()
		released := time.Now()
		holder.stop()
		if err := <-wrote; err != nil {
			t.Fatalf("first write of leader %d: %v", i+1, err)
		}
		took = append(took, time.Since(released))
		holder = next
	}
	holder.stop()
	return took
}

// prepare creates the object if it is missing, with a mark that is older than all that follow.
func (g *guarded) prepare(presented token.Token) error {
	written, err := presented.WithOperation("create")
	if err != nil {
		return err
	}
	report := env.NewReport(namespace, g.report, "")
	report.SetLabels(map[string]string{"report": g.report})
	report.SetAnnotations(map[string]string{v1alpha1.TokenKey(g.name): written.String()})
	return client.IgnoreAlreadyExists(g.Create(g.t.Context(), report))
}

// A credential presents the token and no operation; the term's client writes that besides.
func operationBesideACredential(t *testing.T, g *guarded) {
	a := g.newCandidate("worker-a", g.on)
	a.run()
	term := a.leads()
	account := newAccount(t, g.cluster)
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account.Name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{env.GuardedGroup}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}
	if err := errors.Join(g.Create(t.Context(), role), g.Create(t.Context(), binding)); err != nil {
		t.Fatal(err)
	}
	credential := credentialOf(t, term, func(o *leader.CredentialOptions) {
		o.Config, o.ServiceAccount = g.cluster.Config(), account
	})
	bearing, err := env.Client(credential.Config(g.cluster.Config()))
	if err != nil {
		t.Fatal(err)
	}
	// The API server sees roles a moment late.
	eventually(t, "the credential may write", func() bool { return g.write(bearing, "without an operation") == nil })

	inOperation := func() (context.Context, *fenced.Operation) {
		ctx, operation, err := fenced.WithOperation(t.Context(), "import-17")
		if err != nil {
			t.Fatal(err)
		}
		return ctx, operation
	}
	ctx, _ := inOperation()
	if err := g.writeIn(ctx, bearing, "by the credential alone"); !errors.Is(err, fenced.ErrOperationNotCarried) {
		t.Errorf("by the credential alone: want %v, got %v", fenced.ErrOperationNotCarried, err)
	}
	equal(t, "value", "without an operation", g.value())
	c := term.Client(bearing, fenced.ReadingBy(bearing))
	for _, replay := range []bool{false, true} {
		ctx, operation := inOperation()
		if err := g.writeIn(ctx, c, fmt.Sprintf("replay %v", replay)); err != nil {
			t.Fatal(err)
		}
		record, replayed := operation.Replayed()
		equal(t, "replayed", replay, replayed)
		if replay {
			equal(t, "generation", term.Token().Generation, record.Generation)
		}
		equal(t, "value", "replay false", g.value())
		// A write of somebody else in between, so that the mark of the first attempt is not inherited.
		if err := g.writeIn(t.Context(), bearing, "replay false"); err != nil {
			t.Fatal(err)
		}
	}
	a.finish <- nil
}
