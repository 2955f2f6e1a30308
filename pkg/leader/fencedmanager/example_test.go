// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencedmanager_test

import (
	"log"

	ctrl "sigs.k8s.io/controller-runtime"

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
