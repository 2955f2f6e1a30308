// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencedmanager_test

import (
	"context"
	"log"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

// A write of an operation is applied to an object once, also if the answer to an earlier attempt was lost or an earlier leader
// has made it. The id follows from what is done.
func Example_operation() { //nolint:testableexamples // it needs a cluster
	mgr, err := fencedmanager.New(ctrl.GetConfigOrDie(), ctrl.Options{}, fencedmanager.Options{Namespace: "reports", Name: "report-operator"})
	if err != nil {
		log.Fatal(err)
	}
	report := &unstructured.Unstructured{}
	report.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Report"})
	report.SetNamespace("reports")
	report.SetName("weekly")
	publish := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"published":true}}`))
	// In a reconciler:
	if err := patchOnce(context.Background(), mgr.GetClient(), report, publish); err != nil {
		log.Fatal(err)
	}
}

func patchOnce(ctx context.Context, c client.Client, report client.Object, patch client.Patch) error {
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
