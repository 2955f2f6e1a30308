// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

// StartProduct installs the product with a manager, which ends with the test, and a gap for all Reports. The judgements are
// the manager's.
func StartProduct(t env.T, cluster *env.Environment) (*Judgements, *env.AdmissionGap, error) {
	t.Helper()
	if err := cluster.InstallGuardedCRD(t.Context()); err != nil {
		return nil, nil, err
	}
	if err := product.Install(t.Context(), cluster); err != nil {
		return nil, nil, err
	}
	judged := NewJudgements()
	// The webhook logs by the process's logger.
	ctrl.SetLogger(DebugLog(judged))
	manager, err := product.StartManager(t.Context(), cluster, ctrl.Log)
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
	gap, err := cluster.StartAdmissionGap(t.Context(), admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{env.GuardedGroup}, APIVersions: []string{"*"}, Resources: []string{"reports", "reports/status", "reports/scale"},
		},
	})
	if err != nil {
		return nil, err
	}
	return gap, nil
}
