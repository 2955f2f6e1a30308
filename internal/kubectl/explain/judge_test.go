// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/internal/kubectl/send"
	"github.com/fencedlease/fencedlease/test/env"
)

// What is presented in place of the writer's next operation must be none that the object may record.
func TestTheOperationOfATokenCountsAndNoOther(t *testing.T) {
	lease := env.HeldLease()
	for name, test := range map[string]struct {
		token, mark, records string
		want                 fence.Reason
	}{
		"no operation":                          {"101.aaaaaaaa", "101.aaaaaaaa/_1", "import-17=101", fence.CurrentToken},
		"no operation, beside one with a name":  {"101.aaaaaaaa", "101.aaaaaaaa/_1", "explain=101", fence.CurrentToken},
		"no operation, after one with a name":   {"101.aaaaaaaa", "101.aaaaaaaa/explain", "explain=101", fence.CurrentToken},
		"an operation that is recorded":         {"101.aaaaaaaa/import-17", "101.aaaaaaaa/_1", "import-17=101", fence.AlreadyApplied},
		"an operation that is not":              {"101.aaaaaaaa/import-18", "101.aaaaaaaa/_1", "import-17=101", fence.CurrentToken},
		"an operation that is recorded, before": {"101.aaaaaaaa/import-17", "101.aaaaaaaa/_1", "import-18=101 import-17=100", fence.AlreadyApplied},
	} {
		t.Run(name, func(t *testing.T) {
			for _, carrier := range []send.Carrier{send.CarrierAnnotation, send.CarrierRequest} {
				stored := report(test.mark)
				annotations := stored.GetAnnotations()
				annotations[v1alpha1.OperationsKey("report-writer")] = test.records
				stored.SetAnnotations(annotations)
				e := &explanation{user: authenticationv1.UserInfo{Username: "worker"}, tokens: tokens(test.token), stored: stored, carrier: carrier}
				view := &leaseView{lease: lease, guards: map[string][]int{"": {0}}}
				lease.Spec.Guards = env.NewLease("reports", "report-writer").Spec.Guards
				verdict, err := (&Options{}).decide(t.Context(), e, view, write{operation: fence.Update, old: stored, next: stored})
				if err != nil {
					t.Fatal(err)
				}
				if verdict.Reason != test.want {
					t.Errorf("%s: %s, want %s: %s", carrier, verdict.Reason, test.want, verdict.Message)
				}
			}
		})
	}
}
