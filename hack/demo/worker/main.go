// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// The worker of the demo: a process that leads by election, computes a result, and writes it to reports when it is told
// to. It checks that it leads before it waits for the order, as careful programs do, and not after.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fencedlease/fencedlease/hack/demo/protocol"
)

type options struct {
	kubeconfig, election, namespace, name, identity string
	leaseDuration                                   time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "Where the cluster is, and who this worker is.")
	flag.StringVar(&o.election, "election", protocol.ElectionFenced, "lease or fencedlease.")
	flag.StringVar(&o.namespace, "namespace", "", "Namespace of the lease and of the reports.")
	flag.StringVar(&o.name, "name", "", "Name of the lease.")
	flag.StringVar(&o.identity, "identity", "", "Holder identity, different for each process.")
	flag.DurationVar(&o.leaseDuration, "lease-duration", 15*time.Second, "Lease duration of the elector.")
	flag.Parse()
	if err := run(ctx, o, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "worker %s: %v\n", o.identity, err)
		os.Exit(1)
	}
}

// run leads once. It ends with ctx or with its orders, and gives the lease up then.
func run(ctx context.Context, o options, in io.Reader, out io.Writer) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	writer, err := newReports(config, o.namespace)
	if err != nil {
		return err
	}
	said := json.NewEncoder(out)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	election, err := startElection(ctx, config, o)
	if err != nil {
		return err
	}
	defer func() { cancel(); <-election.stopped }()
	var term term
	select {
	case term = <-election.leading:
	case <-election.stopped:
		return errors.New("the election ended before this worker led")
	}
	leading := protocol.Event{Name: protocol.Leading, Generation: term.generation, Token: term.token}
	if err := said.Encode(leading); err != nil {
		return err
	}

	value := fmt.Sprintf("result of %s", o.identity)
	if !election.elector.IsLeader() {
		return errors.New("lost the lead before the result was computed")
	}
	if err := said.Encode(protocol.Event{Name: protocol.Computed, Value: value}); err != nil {
		return err
	}
	// From here on a pause of any length may pass without this process noticing: orders are carried out also after the
	// election has ended.
	orders, stopped := readOrders(ctx, in), election.stopped
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-stopped:
			stopped = nil
			if ctx.Err() != nil {
				return nil
			}
			if err := said.Encode(protocol.Event{Name: protocol.Lost}); err != nil {
				return err
			}
		case order, open := <-orders:
			if !open {
				return nil
			}
			if err := said.Encode(writer.write(ctx, order.Report, value, term)); err != nil {
				return err
			}
		}
	}
}

// readOrders hands on orders until in or ctx ends.
func readOrders(ctx context.Context, in io.Reader) <-chan protocol.Order {
	orders := make(chan protocol.Order)
	go func() {
		defer close(orders)
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			var order protocol.Order
			if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
				fmt.Fprintf(os.Stderr, "order %q: %v\n", lines.Text(), err)
				return
			}
			select {
			case orders <- order:
			case <-ctx.Done():
				return
			}
		}
	}()
	return orders
}
