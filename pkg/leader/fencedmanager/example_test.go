// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencedmanager_test

import (
	"context"
	"log"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/leader/fencedmanager"
)

// An operator becomes a fenced one where its manager is made. Its controllers are set up as ever.
func Example() { //nolint:testableexamples // it needs a cluster
	mgr, err := fencedmanager.New(ctrl.GetConfigOrDie(), ctrl.Options{LeaderElectionReleaseOnCancel: true},
		fencedmanager.Options{Namespace: "reports", Name: "report-operator"})
	if err != nil {
		log.Fatal(err)
	}
	// ctrl.NewControllerManagedBy(mgr).For(&Report{}).Owns(&Page{}).Complete(reconciler)
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// A reconciler writes a step of a job at most once, also if the answer to an earlier attempt was lost or an earlier leader
// has done it. The id follows from what is done.
func Example_operation() { //nolint:testableexamples // it needs a cluster
	publish := func(ctx context.Context, c client.Client, report client.Object, patch client.Patch) error {
		ctx, operation, err := fenced.WithOperation(ctx, "publish-2026-12")
		if err != nil {
			return err
		}
		if err := c.Patch(ctx, report, patch); err != nil {
			return err
		}
		if record, replayed := operation.Replayed(); replayed {
			log.Printf("published before, under generation %d", record.Generation)
		}
		return nil
	}
	_ = publish // called with the manager's client
}
