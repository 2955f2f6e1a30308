// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
	apply "github.com/fencedlease/fencedlease/pkg/client/applyconfiguration/api/v1alpha1"
)

// conflictPause is the pause before a lease is looked at again that has changed during a pass.
const conflictPause = 100 * time.Millisecond

// leaseReconciler writes the part of a FencedLease's status that is not the holder's.
type leaseReconciler struct {
	// writer writes; live reads from the API server. Renewals wake nobody, so passes are rare enough to read live.
	writer  client.Client
	live    client.Reader
	marks   *markReader
	found   *installation
	sealer  *seal.Sealer
	targets targetReader
	reports *Reports
	events  eventWriter
	metrics *Metrics
	clock   clock.PassiveClock
	rescan  time.Duration

	mu sync.Mutex
	// scans remembers by lease what a look through its guarded objects left open.
	scans map[types.NamespacedName]scan
}

// scan is the last look through the guarded objects of a lease.
type scan struct {
	uid        types.UID
	generation int64
	// again says that the look was not complete, or found an implausible mark.
	again bool
}

// Reconcile makes one pass over one lease: read, look, decide, write once.
func (r *leaseReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	lease := &v1alpha1.FencedLease{}
	// From the API server, linearizable: the floor of a new lease is the version of this very read.
	if err := r.live.Get(ctx, req.NamespacedName, lease); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("get FencedLease: %w", err)
	}
	if !lease.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	r.metrics.observed(lease)
	reported := r.reports.of(req.NamespacedName)
	seen, scanned, err := r.look(ctx, lease)
	if err != nil {
		return ctrl.Result{}, err
	}

	var outcome pass
	sealed := r.seal(ctx, lease)
	if lease.Status.GenerationFloor == nil {
		outcome, err = r.begin(lease, seen, reported)
	} else {
		outcome = r.update(lease, seen, scanned, reported, sealed)
	}
	if err == nil && outcome.configuration != nil {
		err = r.writer.Status().Apply(ctx, outcome.configuration, outcome.manager, client.ForceOwnership)
	}
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err):
		// The lease was created anew in between, or has changed since it was read to be sealed.
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("apply status of FencedLease: %w", err)
	}
	r.reports.done(req.NamespacedName, reported)
	r.remember(lease, seen, scanned)
	outcome.tell(r, lease)
	return ctrl.Result{RequeueAfter: sooner(r.nextLook(req.NamespacedName), sealed.again)}, nil
}

// pass is what one pass has decided.
type pass struct {
	// configuration is what is to be applied by manager, or nil.
	configuration *apply.FencedLeaseApplyConfiguration
	manager       client.FieldOwner
	// tell reports it once it is written.
	tell func(r *leaseReconciler, lease *v1alpha1.FencedLease)
}

// begin gives a new lease its floor. Everything else waits for the next pass, which the write causes.
func (r *leaseReconciler) begin(lease *v1alpha1.FencedLease, seen seenMarks, reported sighting) (pass, error) {
	floor, err := firstFloor(lease, seen.highest, reported.generation)
	if err != nil {
		return pass{}, err
	}
	return pass{
		configuration: firstStatus(lease, floor),
		manager:       FloorManager,
		tell:          func(r *leaseReconciler, lease *v1alpha1.FencedLease) { r.events.marksUnreadable(lease, seen.denied) },
	}, nil
}

// update raises the floor above what was seen, records a seal and renews the conditions.
func (r *leaseReconciler) update(lease *v1alpha1.FencedLease, seen seenMarks, scanned bool, reported sighting, sealed sealing) pass {
	status := &lease.Status
	floor, generation := *status.GenerationFloor, ptr.Deref(status.Generation, 0)
	raisedBy := Evidence("")
	for _, s := range []sighting{{generation: seen.highest, evidence: EvidenceMark}, reported} {
		if s.generation > max(floor, generation) {
			floor, raisedBy = s.generation, s.evidence
		}
	}
	f := facts{
		report: r.found.of(lease), floor: floor, storeWentBack: raisedBy == EvidenceStore,
		scanned: scanned, implausible: firstNonEmpty(seen.implausible, reported.implausible),
		seal: sealed, sealedGeneration: sealed.sealedGeneration(lease),
	}
	conditions := conditionsOf(lease, f, r.clock.Now())
	outcome := pass{manager: FieldManager, tell: func(r *leaseReconciler, lease *v1alpha1.FencedLease) {
		if raisedBy != "" {
			r.metrics.raised(raisedBy)
		}
		if scanned {
			r.events.marksUnreadable(lease, seen.denied)
		}
		r.events.transitions(lease, conditions)
	}}
	if floor == *status.GenerationFloor && f.sealedGeneration == ptr.Deref(status.SealedGeneration, 0) && status.ObservedGeneration == lease.Generation &&
		equality.Semantic.DeepEqual(status.Conditions, conditions) {
		return outcome
	}
	desired := apply.FencedLeaseStatus().WithGenerationFloor(floor).WithSealedGeneration(f.sealedGeneration).
		WithObservedGeneration(lease.Generation)
	for _, c := range conditions {
		desired.WithConditions(applymetav1.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).
			WithMessage(c.Message).WithObservedGeneration(c.ObservedGeneration).WithLastTransitionTime(c.LastTransitionTime))
	}
	outcome.configuration = apply.FencedLease(lease.Name, lease.Namespace).WithUID(lease.UID).WithStatus(desired)
	if f.sealedGeneration != ptr.Deref(status.SealedGeneration, 0) {
		// Of this very term, also if a restored store has given its number to another one.
		outcome.configuration.WithResourceVersion(lease.ResourceVersion)
	}
	return outcome
}

// look looks through the guarded objects of a lease that is new, whose spec has changed, or where the last look has left
// something open.
func (r *leaseReconciler) look(ctx context.Context, lease *v1alpha1.FencedLease) (seen seenMarks, looked bool, err error) {
	r.mu.Lock()
	last := r.scans[client.ObjectKeyFromObject(lease)]
	r.mu.Unlock()
	known := last.uid == lease.UID && last.generation == lease.Generation
	implausible := conditionIsTrue(lease, v1alpha1.ConditionImplausibleMark)
	switch {
	case lease.Status.GenerationFloor == nil, known && last.again, !known && implausible,
		!known && lease.Status.ObservedGeneration != lease.Generation:
	default:
		return seenMarks{}, false, nil
	}
	seen, err = r.marks.read(ctx, lease)
	return seen, err == nil, err
}

// remember keeps whether another look is needed.
func (r *leaseReconciler) remember(lease *v1alpha1.FencedLease, seen seenMarks, scanned bool) {
	if !scanned {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scans[client.ObjectKeyFromObject(lease)] = scan{
		uid: lease.UID, generation: lease.Generation, again: !seen.complete() || seen.implausible != "",
	}
}

// nextLook returns when to look again at guarded objects if nothing else happens, or 0.
func (r *leaseReconciler) nextLook(key types.NamespacedName) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.scans[key].again {
		return r.rescan
	}
	return 0
}

// forget drops what is known of a lease that is gone. Reports of it stay, for a successor of its name.
func (r *leaseReconciler) forget(key types.NamespacedName) {
	r.metrics.gone(key)
	r.sealer.End(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.scans, key)
}

// sooner returns the shorter of two pauses, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func firstNonEmpty(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
