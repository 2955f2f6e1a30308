// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock

import (
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/possession"
)

// recordOf maps a lease with a status to what the elector reads.
func recordOf(lease *v1alpha1.FencedLease) (*resourcelock.LeaderElectionRecord, []byte, error) {
	status := &lease.Status
	generation := ptr.Deref(status.Generation, 0)
	raw, err := possession.Record(lease)
	if err != nil {
		return nil, nil, err
	}
	return &resourcelock.LeaderElectionRecord{
		HolderIdentity:       ptr.Deref(status.HolderIdentity, ""),
		LeaseDurationSeconds: int(lease.Spec.LeaseDurationSeconds),
		AcquireTime:          timeOf(status.AcquireTime),
		RenewTime:            timeOf(status.RenewTime),
		LeaderTransitions:    int(min(generation, math.MaxInt32)),
	}, raw, nil
}

func timeOf(t *metav1.MicroTime) metav1.Time {
	if t == nil {
		return metav1.Time{}
	}
	return metav1.NewTime(t.Time)
}
