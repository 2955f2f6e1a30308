// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Command clientgo is a program with client-go's own LeaderElector. Two things make it a fenced one: the lock is a
// FencedLease, and the client of the work is made from a wrapped configuration.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/resourcelock"
)

var reports = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "reports"}

func main() {
	name := flag.String("report", "daily", "the report to write")
	flag.Parse()
	if err := run(ctrl.SetupSignalHandler(), ctrl.GetConfigOrDie(), *name); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, config *rest.Config, name string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	identity := fmt.Sprintf("%s_%d", host, os.Getpid())
	lock, err := resourcelock.New(config, "reports", "report-writer", identity, resourcelock.Options{})
	if err != nil {
		return err
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock,
		// The first must be the lease's spec.leaseDurationSeconds.
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				if err := work(ctx, config, lock, name, identity); err != nil {
					log.Print(err)
				}
			},
			OnStoppedLeading: func() { log.Print("stopped leading") },
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	return nil
}

func work(ctx context.Context, config *rest.Config, lock *resourcelock.Lock, name, identity string) error {
	// Taken once, as the work begins: a later term of this process is another one.
	term, err := fenced.OfLock(lock)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(fenced.Wrap(config, term))
	if err != nil {
		return err
	}
	log.Printf("leading under %s", term.Token())
	report := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Report",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"value": "result of " + identity},
	}}
	_, err = client.Resource(reports).Namespace("reports").Apply(ctx, name, report, metav1.ApplyOptions{FieldManager: "report-writer", Force: true})
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	log.Printf("wrote report %s", name)
	return nil
}
