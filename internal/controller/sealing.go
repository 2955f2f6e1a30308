// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// sealing is how far the seal of a lease's term is.
type sealing struct {
	// waiting says why it has not begun, or is empty.
	waiting string
	status  seal.Status
	// again is when to look again in any case, or 0.
	again time.Duration
}

// done says that the term is sealed, by this pass if not before.
func (s sealing) done() bool { return s.status.State == seal.Done }

// seal has the term sealed if it must be, and watched afterwards. It begins once the guards are in force for the lease's
// spec, so that no API server admits an older write that the seal would not see. The lease was read from the API server, so
// what is listed from now on has every write that was committed before the term began.
//
// A term of a lease in Audit is sealed as well, so that the cost is known before the lease is enforced, but a missing right
// keeps nobody waiting then. It proves nothing, as marks of leases in Audit do not: when Audit ends within a term, older
// writes that were admitted before may still be committed, until the next one.
func (r *leaseReconciler) seal(ctx context.Context, lease *v1alpha1.FencedLease) sealing {
	key, status := client.ObjectKeyFromObject(lease), &lease.Status
	term, err := token.New(ptr.Deref(status.Generation, 0), ptr.Deref(status.Term, ""))
	if status.Seal != v1alpha1.SealRequired || err != nil {
		// An error means that nobody has held the lease yet.
		r.sealer.End(key)
		return sealing{}
	}
	if len(lease.Spec.Guards) == 0 {
		r.sealer.End(key)
		return sealing{status: seal.Status{State: seal.Done}}
	}
	found := r.found.of(lease)
	order := r.order(lease, term, found)
	if found.known && found.verdict.inForce {
		progress, again := r.sealer.Seal(ctx, order)
		return sealing{status: progress, again: again}
	}
	if progress, running := r.sealer.Running(order); running {
		return sealing{status: progress}
	}
	r.sealer.Pause(key)
	if found.known {
		return sealing{waiting: found.verdict.message}
	}
	return sealing{waiting: "it is not known yet whether they are"}
}

func (r *leaseReconciler) order(lease *v1alpha1.FencedLease, term token.Token, found report) seal.Order {
	// What is guarded changes with the spec, and with what of it can be installed.
	version := fmt.Sprintf("%d %v", lease.Generation, found.problems)
	return seal.Order{
		Lease: client.ObjectKeyFromObject(lease), UID: lease.UID, Token: term, Version: version,
		Sealed:     ptr.Deref(lease.Status.SealedGeneration, 0) == term.Generation,
		DeleteLate: lease.Spec.LateCreates == v1alpha1.LateCreatesDelete && lease.Spec.Enforcement != v1alpha1.EnforcementAudit,
		Lenient:    lease.Spec.Enforcement == v1alpha1.EnforcementAudit,
		Targets:    func(ctx context.Context) ([]seal.Target, error) { return r.targets.of(ctx, lease) },
	}
}

// sealedGeneration returns what is to be written as such.
func (s sealing) sealedGeneration(lease *v1alpha1.FencedLease) int64 {
	sealed := ptr.Deref(lease.Status.SealedGeneration, 0)
	if s.done() {
		// Should a newer term have begun since, this generation is not its own, and it is sealed in its turn.
		sealed = max(sealed, ptr.Deref(lease.Status.Generation, 0))
	}
	return sealed
}
