// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// NewLease returns a FencedLease that guards Reports with all their subresources. Each mutation changes it.
func NewLease(namespace, name string, mutations ...func(*v1alpha1.FencedLease)) *v1alpha1.FencedLease {
	lease := &v1alpha1.FencedLease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.FencedLeaseSpec{
			LeaseDurationSeconds: 15,
			Guards:               []v1alpha1.Guard{{APIGroups: []string{GuardedGroup}, Resources: []string{"reports/*"}}},
		},
	}
	for _, mutate := range mutations {
		mutate(lease)
	}
	return lease
}

// Noon is when worker-a has acquired and renewed a HeldLease.
var Noon = metav1.NewMicroTime(time.Date(2026, 11, 1, 12, 0, 0, 123456000, time.UTC))

// HeldLease returns a lease that worker-a holds under generation 101, as it is stored. Each mutation changes it.
func HeldLease(mutations ...func(*v1alpha1.FencedLease)) *v1alpha1.FencedLease {
	lease := &v1alpha1.FencedLease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "reports", Name: "report-writer", UID: "u1", ResourceVersion: "500"},
		Spec: v1alpha1.FencedLeaseSpec{
			LeaseDurationSeconds: 15,
			Enforcement:          v1alpha1.EnforcementEnforce,
			Handover:             v1alpha1.HandoverLazy,
			MinGeneration:        ptr.To[int64](0),
		},
		Status: v1alpha1.FencedLeaseStatus{
			Generation:       ptr.To[int64](101),
			Term:             ptr.To("aaaaaaaa"),
			Token:            ptr.To("101.aaaaaaaa"),
			HolderIdentity:   ptr.To("worker-a"),
			AcquireTime:      ptr.To(Noon),
			RenewTime:        ptr.To(Noon),
			GenerationFloor:  ptr.To[int64](100),
			Handover:         v1alpha1.HandoverLazy,
			Seal:             v1alpha1.SealNotRequired,
			SealedGeneration: ptr.To[int64](0),
		},
	}
	for _, mutate := range mutations {
		mutate(lease)
	}
	return lease
}

// FirstStatus returns the status that the controller gives a new FencedLease: a floor, and nothing held.
func FirstStatus(floor int64) v1alpha1.FencedLeaseStatus {
	return v1alpha1.FencedLeaseStatus{
		Generation:       ptr.To[int64](0),
		Term:             ptr.To(""),
		Token:            ptr.To(""),
		HolderIdentity:   ptr.To(""),
		GenerationFloor:  ptr.To(floor),
		Handover:         v1alpha1.HandoverLazy,
		Seal:             v1alpha1.SealNotRequired,
		SealedGeneration: ptr.To[int64](0),
	}
}

// SetFloor writes the first status of a FencedLease as the controller does. A floor below 0 stands for the resourceVersion
// at which the FencedLease was read, from the API server.
func SetFloor(ctx context.Context, c client.Client, lease *v1alpha1.FencedLease, floor int64) error {
	if err := c.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
		return fmt.Errorf("get FencedLease: %w", err)
	}
	if floor < 0 {
		var err error
		if floor, err = strconv.ParseInt(lease.ResourceVersion, 10, 64); err != nil {
			return fmt.Errorf("parse resourceVersion: %w", err)
		}
	}
	lease.Status = FirstStatus(floor)
	if err := c.Status().Update(ctx, lease); err != nil {
		return fmt.Errorf("set first status of FencedLease: %w", err)
	}
	return nil
}

// CreateLease creates a FencedLease and sets its floor to its resourceVersion. No controller may be running.
func CreateLease(ctx context.Context, c client.Client, lease *v1alpha1.FencedLease) error {
	if err := c.Create(ctx, lease); err != nil {
		return fmt.Errorf("create FencedLease: %w", err)
	}
	return SetFloor(ctx, c, lease, -1)
}

// NewTerm returns a random term.
func NewTerm() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	term := make([]byte, 8)
	_, _ = rand.Read(term) // never fails
	for i := range term {
		term[i] = letters[int(term[i])%len(letters)]
	}
	return string(term)
}

// NextStatus returns the status of an acquisition by a holder: a new term under the next generation.
func NextStatus(lease *v1alpha1.FencedLease, holder string) v1alpha1.FencedLeaseStatus {
	old := lease.Status
	next := *old.DeepCopy()
	generation := 1 + max(ptr.Deref(old.Generation, 0), ptr.Deref(old.GenerationFloor, 0), ptr.Deref(lease.Spec.MinGeneration, 0))
	term := NewTerm()
	now := metav1.NewMicroTime(time.Now())
	next.Generation, next.Term, next.HolderIdentity = &generation, &term, &holder
	next.Token = ptr.To(strconv.FormatInt(generation, 10) + "." + term)
	next.AcquireTime, next.RenewTime = &now, &now
	next.Handover, next.Seal = lease.Spec.Handover, v1alpha1.SealNotRequired
	unsealed := old.Seal == v1alpha1.SealRequired && ptr.Deref(old.SealedGeneration, 0) != ptr.Deref(old.Generation, 0)
	if lease.Spec.Handover == v1alpha1.HandoverSeal || old.Handover == v1alpha1.HandoverSeal || unsealed {
		next.Seal = v1alpha1.SealRequired
	}
	return next
}

// Acquire takes the FencedLease for a holder, whoever holds it: it reads it from the API server into lease and updates its
// status, conditioned on the resourceVersion that it read. Afterwards lease is the stored one.
func Acquire(ctx context.Context, c client.Client, lease *v1alpha1.FencedLease, holder string) error {
	if err := c.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
		return fmt.Errorf("get FencedLease: %w", err)
	}
	lease.Status = NextStatus(lease, holder)
	if err := c.Status().Update(ctx, lease); err != nil {
		return fmt.Errorf("acquire FencedLease: %w", err)
	}
	return nil
}

// Renew renews the term that lease shows, which may have ended: a merge patch that names generation, term and holder and
// has no resourceVersion. Lease itself stays as it is.
func Renew(ctx context.Context, c client.Client, lease *v1alpha1.FencedLease) error {
	return patchTerm(ctx, c, lease, map[string]any{"holderIdentity": lease.Status.HolderIdentity, "renewTime": metav1.NewMicroTime(time.Now())})
}

// Release ends the possession of the term that lease shows, which may have ended already: a merge patch that names
// generation and term and has no resourceVersion. Lease itself stays as it is.
func Release(ctx context.Context, c client.Client, lease *v1alpha1.FencedLease) error {
	return patchTerm(ctx, c, lease, map[string]any{"holderIdentity": "", "renewTime": metav1.NewMicroTime(time.Now())})
}

func patchTerm(ctx context.Context, c client.Client, lease *v1alpha1.FencedLease, fields map[string]any) error {
	fields["generation"], fields["term"] = lease.Status.Generation, lease.Status.Term
	patch, err := json.Marshal(map[string]any{"status": fields})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	target := &v1alpha1.FencedLease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}}
	if err := c.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("patch status of FencedLease: %w", err)
	}
	return nil
}

// Token returns the token of the term that lease shows, with an operation unless it is empty.
func Token(lease *v1alpha1.FencedLease, operation string) string {
	token := ptr.Deref(lease.Status.Token, "")
	if operation != "" {
		token += "/" + operation
	}
	return token
}
