// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// sealCommand is the first argument that makes this program measure handovers by seal.
const sealCommand = "seal"

// sealOptions are the command line of it.
type sealOptions struct {
	options
	sizes  []int
	pairs  int
	memory int
}

func runSeal(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	o := sealOptions{}
	sizes := ""
	flags := flag.NewFlagSet("bench "+sealCommand, flag.ContinueOnError)
	flags.StringVar(&o.manager, "manager", "", "Path of the manager's binary.")
	flags.StringVar(&sizes, "sizes", "10,1000,10000", "Numbers of guarded objects whose handover is measured.")
	flags.IntVar(&o.pairs, "pairs", 7, "How often a handover and as many plain patches are measured for each number.")
	flags.IntVar(&o.memory, "memory", 0, "Number of objects of one more handover, which only the manager's memory is measured of. 0 leaves it out.")
	flags.IntVar(&o.rounds, "rounds", 7, "How often writes under a sealed term are measured. 0 leaves that out.")
	flags.DurationVar(&o.cell, "cell", time.Second, "How long one kind of admission is measured by one number of writers in a round.")
	flags.DurationVar(&o.warmUp, "warm-up", 100*time.Millisecond, "How long writers write before they are measured.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for text := range strings.SplitSeq(sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 {
			return fmt.Errorf("-sizes %q: numbers of objects, separated by commas, are needed", sizes)
		}
		o.sizes = append(o.sizes, size)
	}
	if o.manager == "" || o.pairs < 1 || o.cell <= 0 {
		return errors.New("-manager, at least one pair and a positive time are needed")
	}
	fmt.Fprintln(progress, "bench: starting a control plane, the manager and a no-op webhook")
	c, err := startCluster(ctx, o.manager)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.check(ctx); err != nil {
		return err
	}
	return c.measureSeals(ctx, o, out, progress)
}

// handover is what one change of holder by seal took, and as many plain patches.
type handover struct {
	// sealed is the time from the answer to the acquisition until the lease says that it is sealed.
	sealed time.Duration
	// plain is the time that as many patches of unguarded objects took.
	plain time.Duration
}

func (c *cluster) measureSeals(ctx context.Context, o sealOptions, out, progress io.Writer) error {
	results := map[int][]handover{}
	memory := map[int]memory{}
	for _, size := range o.sizes {
		fmt.Fprintf(progress, "bench: %d objects\n", size)
		g, err := c.prepareGuarded(ctx, size)
		if err != nil {
			return err
		}
		if err := c.createMany(ctx, plainNamespace(size), size); err != nil {
			return err
		}
		for i := range o.pairs {
			var result handover
			steps := []func() error{
				func() error { return c.measureHandover(ctx, g, &result, memory) },
				func() (err error) { result.plain, err = c.patchAll(ctx, plainNamespace(size), size); return err },
			}
			// Whatever comes second meets what the first has left, so that the order changes.
			if i%2 == 1 {
				steps[0], steps[1] = steps[1], steps[0]
			}
			for _, step := range steps {
				if err := step(); err != nil {
					return err
				}
			}
			results[size] = append(results[size], result)
			fmt.Fprintf(progress, "bench: %d objects, pair %d of %d: sealed in %v, patched in %v\n",
				size, i+1, o.pairs, result.sealed.Round(time.Millisecond), result.plain.Round(time.Millisecond))
		}
	}
	if o.memory > 0 {
		fmt.Fprintf(progress, "bench: memory at %d objects\n", o.memory)
		g, err := c.prepareGuarded(ctx, o.memory)
		if err == nil {
			err = c.measureHandover(ctx, g, &handover{}, memory)
		}
		if err != nil {
			return err
		}
	}
	var rounds []round
	for i := range o.rounds {
		r, err := c.round(ctx, o.options)
		if err != nil {
			return err
		}
		rounds = append(rounds, r)
		fmt.Fprintf(progress, "bench: round %d of %d\n", i+1, o.rounds)
	}
	return writeSeals(out, o, results, memory, rounds)
}

// guarded is a namespace with objects and the lease that guards them.
type guarded struct {
	size  int
	lease *v1alpha1.FencedLease
	// holders counts the handovers.
	holders int
}

func sealNamespace(size int) string  { return "seal-" + strconv.Itoa(size) }
func plainNamespace(size int) string { return "plain-" + strconv.Itoa(size) }

// prepareGuarded creates objects, then what guards them, and makes one handover that is not measured.
func (c *cluster) prepareGuarded(ctx context.Context, size int) (*guarded, error) {
	if err := c.createMany(ctx, sealNamespace(size), size); err != nil {
		return nil, err
	}
	g := &guarded{size: size, lease: env.NewLease(sealNamespace(size), leaseName, func(l *v1alpha1.FencedLease) {
		l.Spec.Handover = v1alpha1.HandoverSeal
	})}
	if err := product.CreateLease(ctx, c.client, g.lease); err != nil {
		return nil, err
	}
	return g, c.measureHandover(ctx, g, &handover{}, nil)
}

// createMany creates a namespace with reports.
func (c *cluster) createMany(ctx context.Context, namespace string, size int) error {
	if err := c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	return parallel(size, func(i int) error {
		if err := c.client.Create(ctx, env.NewReport(namespace, "report-"+strconv.Itoa(i), "first")); err != nil {
			return fmt.Errorf("create report: %w", err)
		}
		return nil
	})
}

// parallel does something for each of n numbers, as many at once as a seal stamps objects, and returns the first error.
func parallel(n int, do func(i int) error) error {
	var next atomic.Int64
	var group sync.WaitGroup
	failures := make(chan error, seal.DefaultParallel)
	for range seal.DefaultParallel {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	return <-failures
}

// patchAll patches every report of a namespace that nothing guards, and returns how long all of them took.
func (c *cluster) patchAll(ctx context.Context, namespace string, size int) (time.Duration, error) {
	value := strconv.FormatInt(c.written.Add(1), 10)
	patch := `{"metadata":{"annotations":{"` + v1alpha1.TokenKey(leaseName) + `":"` + value + `.aaaaaaaa"}}}`
	begin := time.Now()
	err := parallel(size, func(i int) error { return c.patch(ctx, c.writer, namespace, "report-"+strconv.Itoa(i), patch) })
	return time.Since(begin), err
}

func (c *cluster) measureHandover(ctx context.Context, g *guarded, result *handover, memories map[int]memory) error {
	g.holders++
	watched, stop := context.WithCancel(ctx)
	defer stop()
	seen := make(chan memory, 1)
	go func() { seen <- c.watchMemory(watched) }()
	var err error
	result.sealed, err = c.handOver(ctx, g.lease, "holder-"+strconv.Itoa(g.holders))
	stop()
	if now := <-seen; memories != nil && now.resident > 0 {
		memories[g.size] = memories[g.size].max(now)
	}
	if err != nil {
		return fmt.Errorf("hand %d objects over: %w", g.size, err)
	}
	return nil
}

// handOver takes a lease for another holder, and returns the time until its term is sealed.
func (c *cluster) handOver(ctx context.Context, lease *v1alpha1.FencedLease, holder string) (time.Duration, error) {
	events, err := c.watcher.Watch(ctx, &v1alpha1.FencedLeaseList{}, client.InNamespace(lease.Namespace))
	if err != nil {
		return 0, fmt.Errorf("watch FencedLease: %w", err)
	}
	defer events.Stop()
	// The controller may write conditions in between.
	for err = env.Acquire(ctx, c.client, lease, holder); apierrors.IsConflict(err); err = env.Acquire(ctx, c.client, lease, holder) {
	}
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				return 0, errors.New("the watch of the FencedLease has ended before the seal")
			}
			if now, ok := event.Object.(*v1alpha1.FencedLease); ok && ptr.Deref(now.Status.SealedGeneration, 0) == *lease.Status.Generation {
				return time.Since(begin), nil
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// memory is what the manager's process uses.
type memory struct{ resident, heap float64 }

func (m memory) max(n memory) memory {
	return memory{max(m.resident, n.resident), max(m.heap, n.heap)}
}

// watchMemory returns the most that the manager has used until ctx ends, as often as it is looked at.
func (c *cluster) watchMemory(ctx context.Context) memory {
	var most memory
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		if body, err := get(ctx, c.managerMetrics); err == nil {
			most = most.max(memory{sum(body, "process_resident_memory_bytes"), sum(body, "go_memstats_heap_inuse_bytes")})
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return most
		}
	}
}

// writeSeals prints the results as Markdown.
func writeSeals(out io.Writer, o sealOptions, results map[int][]handover, memories map[int]memory, rounds []round) error {
	var text strings.Builder
	fmt.Fprintf(&text, "Handovers by seal, and as many plain merge patches of unguarded objects, %d at once. Median · middle half · lowest to highest of %d pairs.\n\n",
		seal.DefaultParallel, o.pairs)
	text.WriteString("| guarded objects | stamps/s to plain patches/s | sealed after, s | plain patches, s | manager's memory at most: resident, heap in use |\n|---|---|---|---|---|\n")
	for _, size := range o.sizes {
		var ratios, sealedIn, patchedIn []float64
		for _, r := range results[size] {
			ratios = append(ratios, r.plain.Seconds()/r.sealed.Seconds())
			sealedIn = append(sealedIn, r.sealed.Seconds())
			patchedIn = append(patchedIn, r.plain.Seconds())
		}
		fmt.Fprintf(&text, "| %d | %s | %s | %s | %s |\n", size, spreadOf(ratios), spreadOf(sealedIn), spreadOf(patchedIn), memories[size])
	}
	if o.memory > 0 {
		fmt.Fprintf(&text, "| %d | not measured | | | %s |\n", o.memory, memories[o.memory])
	}
	if len(rounds) > 0 {
		text.WriteString("\nWrites under a sealed term, which need no read of the lease. ")
		fmt.Fprintf(&text, "Median · middle half · lowest to highest of %d rounds.\n\n", len(rounds))
		text.WriteString("| writers | p50 to lazy term | p50 to no-op webhook | throughput to lazy term | throughput to no-op webhook | p50, ms | reads of the lease |\n|---|---|---|---|---|---|---|\n")
		for _, writers := range writerCounts() {
			at := place{writers, sealed}
			var reads float64
			for _, r := range rounds {
				reads += r[at].reads
			}
			fmt.Fprintf(&text, "| %d | %s | %s | %s | %s | %.1f | %.0f |\n", writers,
				ratio(rounds, at, fenced, p50), ratio(rounds, at, noop, p50),
				ratio(rounds, at, fenced, perSecond), ratio(rounds, at, noop, perSecond), values(rounds, at, p50).middle, reads)
		}
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("write tables: %w", err)
	}
	return nil
}

func (m memory) String() string {
	return fmt.Sprintf("%.0f MiB, %.0f MiB", m.resident/(1<<20), m.heap/(1<<20))
}
