// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator does to a lease what an operator and the controller do, in tests that run without the product.
package operator

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

// Operator has one lease, by its name. Whatever fails ends the test, unless a method returns an error.
type Operator struct {
	client.Client
	t    *testing.T
	name types.NamespacedName
}

// New returns the operator of a lease, which need not exist. The configuration is that of a cluster administrator.
func New(t *testing.T, config *rest.Config, namespace, name string) *Operator {
	t.Helper()
	c, err := env.Client(config)
	if err != nil {
		t.Fatal(err)
	}
	return &Operator{Client: c, t: t, name: types.NamespacedName{Namespace: namespace, Name: name}}
}

// CreateLease creates the lease as env.NewLease makes it.
func (o *Operator) CreateLease(mutations ...func(*v1alpha1.FencedLease)) {
	o.t.Helper()
	if err := o.Create(o.t.Context(), env.NewLease(o.name.Namespace, o.name.Name, mutations...)); err != nil {
		o.t.Fatalf("create the lease: %v", err)
	}
}

// SetFloor writes the first status, as the controller does.
func (o *Operator) SetFloor() {
	o.t.Helper()
	if err := env.SetFloor(o.t.Context(), o.Client, o.Lease(), -1); err != nil {
		o.t.Fatal(err)
	}
}

// Lease reads the lease from the API server.
func (o *Operator) Lease() *v1alpha1.FencedLease {
	o.t.Helper()
	lease := &v1alpha1.FencedLease{}
	if err := o.Get(o.t.Context(), o.name, lease); err != nil {
		o.t.Fatalf("read the lease: %v", err)
	}
	return lease
}

// PatchLease sends a merge patch of the lease, or of the subresource status if that is named.
func (o *Operator) PatchLease(body string, subresource ...string) error {
	target, patch := env.NewLease(o.name.Namespace, o.name.Name), client.RawPatch(types.MergePatchType, []byte(body))
	if len(subresource) > 0 {
		return o.SubResource(subresource[0]).Patch(o.t.Context(), target, patch)
	}
	return o.Patch(o.t.Context(), target, patch)
}

// MustPatchLease is PatchLease that has to succeed.
func (o *Operator) MustPatchLease(body string, subresource ...string) {
	o.t.Helper()
	if err := o.PatchLease(body, subresource...); err != nil {
		o.t.Fatalf("patch the lease: %v", err)
	}
}

// WriteCondition does what the controller does all the time: it changes the resourceVersion and is no renewal.
func (o *Operator) WriteCondition(i int) error {
	return o.PatchLease(fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"R%d","message":"","lastTransitionTime":"2026-11-01T12:00:00Z"}]}}`, i), "status")
}

// Take makes somebody the holder, whoever holds the lease, and returns the lease as it is stored then.
func (o *Operator) Take(holder string) *v1alpha1.FencedLease {
	o.t.Helper()
	lease := o.Lease()
	for {
		err := env.Acquire(o.t.Context(), o.Client, lease, holder)
		if err == nil {
			return lease
		}
		if !apierrors.IsConflict(err) {
			o.t.Fatalf("take the lease: %v", err)
		}
	}
}

// Possession is what a status says of the holder. A text that is not there is "-", and a generation is -1.
type Possession struct {
	Generation            int64
	Term, Token, Identity string
}

// Possession is that of the lease, read from the API server.
func (o *Operator) Possession() Possession {
	o.t.Helper()
	return PossessionIn(o.Lease())
}

// PossessionIn is that of a lease as it was read.
func PossessionIn(lease *v1alpha1.FencedLease) Possession {
	status := lease.Status
	return Possession{
		Generation: ptr.Deref(status.Generation, -1), Term: ptr.Deref(status.Term, "-"),
		Token: ptr.Deref(status.Token, "-"), Identity: ptr.Deref(status.HolderIdentity, "-"),
	}
}
