// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package mutants_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/test/robustness/mutants"
)

// TestMutants runs each mutant of the product in the place of the manager, or of a holder, and demands that its check
// notices it. Before that, the same checks must find nothing wrong with the product itself.
func TestMutants(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	b, err := newBench(t)
	if err != nil {
		t.Fatal(err)
	}
	chosen := selected(t, mutants.All())
	all := checks()

	builds := &builder{root: b.cluster.ModuleRoot(), dir: t.TempDir()}
	itself := builds.begin(t.Context(), nil)
	if err := itself.await(); err != nil {
		t.Fatal(err)
	}
	next := builds.begin(t.Context(), chosen[0])
	b.actorPath = itself.actor
	if err := b.swap(t.Context(), itself.manager); err != nil {
		t.Fatal(err)
	}
	took := map[string]time.Duration{}
	for _, m := range chosen {
		if _, done := took[m.Check]; done {
			continue
		}
		began := time.Now()
		wrong, err := all[m.Check](t, b)
		took[m.Check] = time.Since(began)
		if err != nil || len(wrong) > 0 {
			t.Fatalf("the product itself, %s: %v\n%s", m.Check, err, strings.Join(wrong, "\n"))
		}
		t.Logf("the product itself, %s: nothing is wrong (%.1f s)", m.Check, took[m.Check].Seconds())
	}

	report := &strings.Builder{}
	rows := tabwriter.NewWriter(report, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(rows, "mutant\tfile\tcaught by\tbuild s\tcheck s")
	caught := 0
	for i, m := range chosen {
		t.Run(m.Name, func(t *testing.T) {
			now := next
			if err := now.await(); err != nil {
				t.Fatal(err)
			}
			if i+1 < len(chosen) {
				next = builds.begin(context.WithoutCancel(t.Context()), chosen[i+1])
			}
			began := time.Now()
			b.actorPath = cmp.Or(now.actor, itself.actor)
			if err := b.swap(t.Context(), cmp.Or(now.manager, itself.manager)); err != nil {
				t.Fatal(err)
			}
			wrong, err := all[m.Check](t, b)
			seconds := time.Since(began).Seconds()
			switch {
			case err != nil:
				t.Errorf("nothing can be said: %v", err)
			case len(wrong) == 0:
				t.Errorf("SURVIVED: %s finds nothing wrong with the mutant", m.Check)
			default:
				caught++
				t.Logf("caught by %s: %s", m.Check, wrong[0])
				_, _ = fmt.Fprintf(rows, "%s\t%s\t%s\t%.1f\t%.1f\n", m.Name, m.Edits[0].File, m.Check, now.took.Seconds(), seconds)
			}
		})
	}
	_ = rows.Flush()
	t.Logf("\n%s%d of %d mutants caught", report, caught, len(chosen))
}

// selected returns the mutants that -run asks for, so that neither checks nor programs of others cost time.
func selected(t *testing.T, all []*mutants.Mutant) []*mutants.Mutant {
	t.Helper()
	_, pattern, found := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	if !found {
		return all
	}
	chooses, err := regexp.Compile(strings.ReplaceAll(pattern, " ", "_"))
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(m *mutants.Mutant) bool {
		return !chooses.MatchString(strings.ReplaceAll(m.Name, " ", "_"))
	})
	if len(all) == 0 {
		t.Fatalf("no mutant matches %q", pattern)
	}
	return all
}

// builder builds programs, one mutant at a time, while another one is at work.
type builder struct {
	root, dir string
	mu        sync.Mutex
}

// build is the program that a mutant changes, or both of the product itself, once done is closed.
type build struct {
	manager, actor string
	took           time.Duration
	err            error
	done           chan struct{}
}

func (b *builder) begin(ctx context.Context, m *mutants.Mutant) *build {
	out := &build{done: make(chan struct{})}
	go func() {
		defer close(out.done)
		b.mu.Lock()
		defer b.mu.Unlock()
		began := time.Now()
		if m == nil || !m.Holder {
			out.manager, out.err = mutants.Build(ctx, b.root, b.dir, managerProgram, m)
		}
		if out.err == nil && (m == nil || m.Holder) {
			out.actor, out.err = mutants.Build(ctx, b.root, b.dir, actorProgram, m)
		}
		out.took = time.Since(began)
	}()
	return out
}

func (b *build) await() error {
	<-b.done
	return b.err
}
