// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock

import (
	"encoding/json"
	"fmt"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// rawRecord is what the elector compares to see that a holder lives. The package comment lists its fields; adding one
// makes every writer of that field keep a silent holder in office.
type rawRecord struct {
	UID                  types.UID         `json:"uid"`
	Generation           int64             `json:"generation"`
	Term                 string            `json:"term"`
	HolderIdentity       string            `json:"holderIdentity"`
	AcquireTime          *metav1.MicroTime `json:"acquireTime"`
	RenewTime            *metav1.MicroTime `json:"renewTime"`
	LeaseDurationSeconds int32             `json:"leaseDurationSeconds"`
}

// recordOf maps a lease with a status to what the elector reads.
func recordOf(lease *v1alpha1.FencedLease) (*resourcelock.LeaderElectionRecord, []byte, error) {
	status := &lease.Status
	generation := ptr.Deref(status.Generation, 0)
	holder := ptr.Deref(status.HolderIdentity, "")
	raw, err := json.Marshal(rawRecord{
		UID:                  lease.UID,
		Generation:           generation,
		Term:                 ptr.Deref(status.Term, ""),
		HolderIdentity:       holder,
		AcquireTime:          status.AcquireTime,
		RenewTime:            status.RenewTime,
		LeaseDurationSeconds: lease.Spec.LeaseDurationSeconds,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("encode the record of FencedLease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return &resourcelock.LeaderElectionRecord{
		HolderIdentity:       holder,
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

// hasStatus reports whether the controller has set the generation floor, and with it the whole status.
func hasStatus(lease *v1alpha1.FencedLease) bool { return lease.Status.GenerationFloor != nil }
