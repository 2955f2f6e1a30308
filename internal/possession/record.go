// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package possession

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// rawRecord is what followers compare to see that a holder lives. Adding a field makes every writer of that field keep a
// silent holder in office.
type rawRecord struct {
	UID                  types.UID         `json:"uid"`
	Generation           int64             `json:"generation"`
	Term                 string            `json:"term"`
	HolderIdentity       string            `json:"holderIdentity"`
	AcquireTime          *metav1.MicroTime `json:"acquireTime"`
	RenewTime            *metav1.MicroTime `json:"renewTime"`
	LeaseDurationSeconds int32             `json:"leaseDurationSeconds"`
}

// Record returns the bytes that change with each sign of life of the holder: with acquisitions, renewals, releases and
// another duration, and with nothing else. Neither conditions, which the controller writes, nor resourceVersion, guards
// or credentials count.
func Record(lease *v1alpha1.FencedLease) ([]byte, error) {
	status := &lease.Status
	raw, err := json.Marshal(rawRecord{
		UID:                  lease.UID,
		Generation:           ptr.Deref(status.Generation, 0),
		Term:                 ptr.Deref(status.Term, ""),
		HolderIdentity:       ptr.Deref(status.HolderIdentity, ""),
		AcquireTime:          status.AcquireTime,
		RenewTime:            status.RenewTime,
		LeaseDurationSeconds: lease.Spec.LeaseDurationSeconds,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the record of FencedLease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return raw, nil
}

// HasStatus reports whether the controller has set the generation floor, and with it the whole status.
func HasStatus(lease *v1alpha1.FencedLease) bool { return lease.Status.GenerationFloor != nil }

// Shows reports whether the lease is held in the term.
func Shows(lease *v1alpha1.FencedLease, t Term) bool {
	status := &lease.Status
	return lease.UID == t.UID &&
		ptr.Deref(status.Generation, 0) == t.Generation &&
		ptr.Deref(status.Term, "") == t.ID &&
		ptr.Deref(status.HolderIdentity, "") == t.Holder
}

// Sealed reports whether the term may write as far as seals go: it needs none, or the lease shows it sealed.
func Sealed(lease *v1alpha1.FencedLease, t Term) bool {
	return t.Seal == v1alpha1.SealNotRequired || ptr.Deref(lease.Status.SealedGeneration, 0) == t.Generation
}
