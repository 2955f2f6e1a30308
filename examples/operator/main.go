// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Command operator is an operator with controller-runtime that computes the result of each Report. What makes it a fenced one
// is the call that makes its manager; its reconciler knows of nothing.
package main

import (
	"context"
	"log"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fencedlease/fencedlease/pkg/leader/fencedmanager"
)

func main() {
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	if err := run(ctrl.SetupSignalHandler(), ctrl.GetConfigOrDie()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, config *rest.Config) error {
	mgr, err := fencedmanager.New(config, ctrl.Options{
		LeaderElectionReleaseOnCancel: true,
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{"reports": {}}},
		Metrics:                       metricsserver.Options{BindAddress: "0"},
	}, fencedmanager.Options{Namespace: "reports", Name: "report-writer"})
	if err != nil {
		return err
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(newReport()).Complete(&reconciler{mgr.GetClient()}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// reconciler writes the result of Reports.
type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	report := newReport()
	if err := r.Get(ctx, req.NamespacedName, report); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	value, _, err := unstructured.NestedString(report.Object, "spec", "value")
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := unstructured.SetNestedField(report.Object, strings.ToUpper(value), "status", "result"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.Status().Update(ctx, report)
}

func newReport() *unstructured.Unstructured {
	report := &unstructured.Unstructured{}
	report.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Report"})
	return report
}
