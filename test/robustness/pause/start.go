// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// StartProduct installs the product with a manager, which ends with the test, and a gap for all Reports. The judgements are
// the manager's.
func StartProduct(t env.T, cluster *env.Environment) (*Judgements, *env.AdmissionGap, error) {
	t.Helper()
	judged := NewJudgements()
	// The webhook logs by the process's logger.
	ctrl.SetLogger(DebugLog(judged))
	manager, err := product.Start(t.Context(), cluster, ctrl.Log)
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() {
		if err := manager.Stop(); err != nil {
			t.Errorf("stop manager: %v", err)
		}
	})
	gap, err := StartGap(t, cluster)
	return judged, gap, err
}

// StartGap starts the webhook that holds writes of Reports between check and commit.
func StartGap(t env.T, cluster *env.Environment) (*env.AdmissionGap, error) {
	t.Helper()
	return cluster.StartReportGap(t.Context(), "reports", "reports/status", "reports/scale")
}
