// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Command leader writes a report every second while it leads. Start it twice and stop one of the two (Ctrl-Z) for longer than
// the lease's duration: the other leads, and when the first goes on (fg), its write is refused.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/pkg/leader"
)

var reports = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "reports"}

func main() {
	name := flag.String("report", "daily", "the report to write")
	pause := flag.Duration("every", time.Second, "how long to wait between two writes")
	flag.Parse()
	if err := run(ctrl.SetupSignalHandler(), ctrl.GetConfigOrDie(), *name, *pause); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, config *rest.Config, name string, pause time.Duration) error {
	elector, err := leader.New(leader.Options{
		Config: config, Namespace: "reports", Name: "report-writer",
		OnWaiting: func(reason error) { log.Print(reason) },
	})
	if err != nil {
		return err
	}
	return elector.Run(ctx, func(ctx context.Context, term *leader.Term) error {
		log.Printf("leading under %s", term.Token())
		// Everything that is written with this client carries the token of this term, and of no other.
		client, err := dynamic.NewForConfig(term.Wrap(config))
		if err != nil {
			return err
		}
		n := 0
		err = wait.PollUntilContextCancel(ctx, pause, true, func(ctx context.Context) (bool, error) {
			n++
			text := fmt.Sprintf("result %d of %s", n, elector.Identity())
			switch err := write(ctx, client.Resource(reports).Namespace("reports"), name, text); {
			case leader.IsFenced(err):
				// The term is over. Nothing is to be undone: the write was not applied. Run waits for the next term.
				return false, fmt.Errorf("refused: %w", err)
			case err != nil:
				log.Printf("not written, will try again: %v", err)
			default:
				log.Printf("wrote %q", text)
			}
			return false, nil
		})
		if errors.Is(err, context.Canceled) {
			err = nil // the term is over, or the program is to end
		}
		return err
	})
}

// write applies the report. Server-side apply creates what is missing, so that there is one way to write.
func write(ctx context.Context, client dynamic.ResourceInterface, name, text string) error {
	report := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Report",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"value": text},
	}}
	_, err := client.Apply(ctx, name, report, metav1.ApplyOptions{FieldManager: "report-writer", Force: true})
	return err
}
