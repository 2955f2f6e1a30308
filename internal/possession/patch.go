// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package possession

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// Patch is a merge patch of the status. Absent fields stay as they are.
type Patch struct {
	Metadata *PatchMetadata `json:"metadata,omitempty"`
	Status   PatchStatus    `json:"status"`
}

// PatchMetadata is the condition of a patch.
type PatchMetadata struct {
	ResourceVersion string `json:"resourceVersion"`
}

// PatchStatus is what a patch says of the possession. Every patch names generation, term and holder.
type PatchStatus struct {
	Generation     int64              `json:"generation"`
	Term           string             `json:"term"`
	HolderIdentity string             `json:"holderIdentity"`
	Token          *string            `json:"token,omitempty"`
	AcquireTime    *metav1.MicroTime  `json:"acquireTime,omitempty"`
	RenewTime      *metav1.MicroTime  `json:"renewTime,omitempty"`
	Handover       *v1alpha1.Handover `json:"handover,omitempty"`
	Seal           *v1alpha1.Seal     `json:"seal,omitempty"`
	// Credentials replaces all that there are.
	Credentials []v1alpha1.Credential `json:"credentials,omitempty"`
}

// Encode returns the body of the patch.
func (p Patch) Encode() ([]byte, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	return body, nil
}

// Acquisition is the patch that opens a term on the lease as it was read, and the term. The resourceVersion makes sure
// that nothing has changed since. The term's ResourceVersion is that of the answer, so it is for the caller to set.
func Acquisition(lease *v1alpha1.FencedLease, identity, id string, now time.Time) (Patch, Term, error) {
	status := &lease.Status
	generation := 1 + max(ptr.Deref(status.Generation, 0), ptr.Deref(status.GenerationFloor, 0), ptr.Deref(lease.Spec.MinGeneration, 0))
	t, err := token.New(generation, id)
	if err != nil {
		return Patch{}, Term{}, fmt.Errorf("no generation is left on FencedLease %s/%s, create a lease of another name: %w", lease.Namespace, lease.Name, err)
	}
	seal := DueSeal(lease)
	begin := metav1.NewMicroTime(now)
	patch := Patch{
		Metadata: &PatchMetadata{ResourceVersion: lease.ResourceVersion},
		Status: PatchStatus{
			Generation:     generation,
			Term:           id,
			HolderIdentity: identity,
			Token:          ptr.To(t.String()),
			AcquireTime:    &begin,
			RenewTime:      &begin,
			Handover:       &lease.Spec.Handover,
			Seal:           &seal,
		},
	}
	return patch, Term{
		Namespace:   lease.Namespace,
		Name:        lease.Name,
		UID:         lease.UID,
		Generation:  generation,
		ID:          id,
		Holder:      identity,
		AcquireTime: now,
		Seal:        seal,
	}, nil
}

// DueSeal says whether a term that follows the lease's present one must begin with a seal, as the rules of the
// FencedLease demand it.
func DueSeal(lease *v1alpha1.FencedLease) v1alpha1.Seal {
	status := &lease.Status
	neverSealed := status.Seal == v1alpha1.SealRequired &&
		ptr.Deref(status.SealedGeneration, 0) != ptr.Deref(status.Generation, 0)
	if lease.Spec.Handover == v1alpha1.HandoverSeal || status.Handover == v1alpha1.HandoverSeal || neverSealed {
		return v1alpha1.SealRequired
	}
	return v1alpha1.SealNotRequired
}

// Renewal is the patch that keeps a term. It needs no resourceVersion: if the term has ended, the rules of the FencedLease
// refuse it by what it names. It leaves status.token out on purpose: on a store that was restored to the time before the
// acquisition, it would else pass as an acquisition.
func Renewal(t Term, now time.Time) Patch {
	renewed := metav1.NewMicroTime(now)
	return Patch{Status: PatchStatus{
		Generation: t.Generation, Term: t.ID, HolderIdentity: t.Holder, RenewTime: &renewed,
	}}
}

// Release is the patch that ends a term. Like a renewal it names the term, so that it ends no other, also if it arrives
// late; sent twice it changes nothing more.
func Release(t Term) Patch {
	return Patch{Status: PatchStatus{Generation: t.Generation, Term: t.ID, HolderIdentity: ""}}
}
