// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench compares guarded writes with others on a real API server. In every round it measures each kind of
// admission once, in random order and for each number of writers, so that whatever else the machine does meets all of them
// alike; its results are ratios of one round, with their spread over the rounds. The manager and the no-op webhook are
// processes of their own. It prints Markdown tables; hack/make/bench.sh runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	manager string
	rounds  int
	cell    time.Duration
	warmUp  time.Duration
	profile string
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string, out, progress io.Writer) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if len(args) > 0 && args[0] == noopCommand {
		return runNoop(ctx, args[1:])
	}
	if len(args) > 0 && args[0] == sealCommand {
		return runSeal(ctx, args[1:], out, progress)
	}
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.manager, "manager", "", "Path of the manager's binary.")
	flags.IntVar(&o.rounds, "rounds", 13, "How often everything is measured.")
	flags.DurationVar(&o.cell, "cell", time.Second, "How long one kind of admission is measured by one number of writers in a round.")
	flags.DurationVar(&o.warmUp, "warm-up", 100*time.Millisecond, "How long writers write before they are measured.")
	flags.StringVar(&o.profile, "profile", "", "File for a CPU profile of the manager under 16 writers, taken after the last round.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.manager == "" || o.rounds < 1 || o.cell <= 0 {
		return errors.New("-manager, at least one round and a positive time are needed")
	}
	return measure(ctx, o, out, progress)
}

// measure runs the whole comparison.
func measure(ctx context.Context, o options, out, progress io.Writer) (err error) {
	fmt.Fprintln(progress, "bench: starting a control plane, the manager and a no-op webhook")
	c, err := startCluster(ctx, o.manager)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.check(ctx); err != nil {
		return err
	}
	// Connections, caches and compiled expressions are there before the first round.
	for _, k := range kinds() {
		if _, err := c.cell(ctx, k, writerCounts()[1], o.warmUp, o.warmUp); err != nil {
			return err
		}
	}
	begin := time.Now()
	var rounds []round
	for i := range o.rounds {
		r, err := c.round(ctx, o)
		if err != nil {
			return err
		}
		rounds = append(rounds, r)
		fmt.Fprintf(progress, "bench: round %d of %d, %v\n", i+1, o.rounds, time.Since(begin).Round(time.Second))
	}
	if o.profile != "" {
		if err := c.saveProfile(ctx, o.profile); err != nil {
			return err
		}
	}
	return writeTables(out, rounds)
}

// round measures every kind of admission once for each number of writers.
func (c *cluster) round(ctx context.Context, o options) (round, error) {
	r := round{}
	for _, writers := range writerCounts() {
		shuffled := kinds()
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for _, k := range shuffled {
			result, err := c.cell(ctx, k, writers, o.warmUp, o.cell)
			if err != nil {
				return nil, fmt.Errorf("measure %s with %d writers: %w", k, writers, err)
			}
			r[place{writers, k}] = result
		}
	}
	return r, nil
}
