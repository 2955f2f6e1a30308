// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	apply "github.com/fencedlease/fencedlease/pkg/client/applyconfiguration/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// +kubebuilder:rbac:groups=coordination.fencedlease.io,resources=fencedleases,verbs=get;list;watch
// +kubebuilder:rbac:groups=coordination.fencedlease.io,resources=fencedleases/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// evidenceManager owns the generationFloor that a replica raises. It is a manager of its own, so that no other write
	// of the status drops the field.
	evidenceManager client.FieldOwner = "fencedlease-evidence"
	// maxEvidence bounds the evidence that waits. More would only repeat what waits already.
	maxEvidence = 1024
	// evidenceRetry is the pause after a failed write.
	evidenceRetry = 2 * time.Second

	eventOverridden       = "WriteOverridden"
	eventGenerationAhead  = "GenerationAhead"
	eventImplausibleMark  = "ImplausibleMark"
	eventActionAdmit      = "Admit"
	eventActionRaiseFloor = "RaiseFloor"
)

// Evidence acts, on every replica and after the answer was given, on what reviews show: it raises the floor of a lease
// whose generation turned out to be too low, and records events. It implements Observer.
type Evidence struct {
	client   client.Client
	recorder events.EventRecorder
	clock    clock.WithTicker

	mu      sync.Mutex
	pending map[evidenceKey]Sighting
	wake    chan struct{}
}

// evidenceKey is what one sighting is kept of. What no history can have produced is kept apart, so that it never takes the
// place of what must raise the floor.
type evidenceKey struct {
	lease       types.NamespacedName
	implausible bool
}

// Sighting is a generation above that of a lease.
type Sighting struct {
	Lease      types.NamespacedName
	Generation int64
	// Mark says that the object's mark showed it, and not a token that was presented.
	Mark bool
	// Object is the guarded object whose review showed it.
	Object string
}

// plausible tells whether a real history can have come to the generation.
func (s Sighting) plausible() bool { return s.Generation <= token.MaxPlausibleGeneration }

var _ Observer = &Evidence{}

// NewEvidence returns an Evidence that works once it is started. The client reads from the API server, not from a cache.
func NewEvidence(c client.Client, recorder events.EventRecorder, clk clock.WithTicker) *Evidence {
	return &Evidence{
		client: c, recorder: recorder, clock: clk,
		pending: map[evidenceKey]Sighting{}, wake: make(chan struct{}, 1),
	}
}

// NeedLeaderElection says that every replica acts on the evidence of its own reviews.
func (e *Evidence) NeedLeaderElection() bool { return false }

// GenerationAhead implements Observer. It keeps the highest generation of each lease. An implausible token tells nothing:
// it was refused and nothing of it is stored.
func (e *Evidence) GenerationAhead(s Sighting) {
	if !s.plausible() && !s.Mark || !e.put(s) {
		return
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// put keeps a sighting until it is acted on, and reports whether it tells anything new.
func (e *Evidence) put(s Sighting) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := evidenceKey{s.Lease, !s.plausible()}
	before, waiting := e.pending[key]
	if before.Generation >= s.Generation || !waiting && len(e.pending) >= maxEvidence {
		return false
	}
	e.pending[key] = s
	return true
}

// Overridden implements Observer.
func (e *Evidence) Overridden(lease *v1alpha1.FencedLease, user, object, reason string) {
	e.recorder.Eventf(lease, nil, corev1.EventTypeWarning, eventOverridden, eventActionAdmit,
		"%s wrote %s without a token: %s", user, object, short(reason))
}

// Start acts on evidence until the context ends.
func (e *Evidence) Start(ctx context.Context) error {
	retry := e.clock.NewTicker(evidenceRetry)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
		case <-retry.C():
		}
		for _, seen := range e.take() {
			if err := e.raise(ctx, seen); err != nil {
				logf.FromContext(ctx).Error(err, "Cannot raise the generation floor, will try again",
					"fencedLease", klog.KRef(seen.Lease.Namespace, seen.Lease.Name), "generation", seen.Generation)
				e.put(seen)
			}
		}
	}
}

func (e *Evidence) take() map[evidenceKey]Sighting {
	e.mu.Lock()
	defer e.mu.Unlock()
	taken := e.pending
	e.pending = map[evidenceKey]Sighting{}
	return taken
}

// raise makes the next acquisition start above what was seen.
func (e *Evidence) raise(ctx context.Context, seen Sighting) error {
	key := seen.Lease
	lease := &v1alpha1.FencedLease{}
	// Read from the API server: the floor must not be compared with an old copy.
	if err := e.client.Get(ctx, key, lease); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("get FencedLease: %w", err))
	}
	if !seen.plausible() {
		e.recorder.Eventf(lease, nil, corev1.EventTypeWarning, eventImplausibleMark, eventActionAdmit,
			"%s shows generation %d, which no real history can have produced: delete the object and create it anew",
			seen.Object, seen.Generation)
		return nil
	}
	floor := lease.Status.GenerationFloor
	if floor == nil || ptr.Deref(floor, 0) >= seen.Generation || ptr.Deref(lease.Status.Generation, 0) >= seen.Generation {
		return nil
	}
	configuration := apply.FencedLease(key.Name, key.Namespace).
		WithStatus(apply.FencedLeaseStatus().WithGenerationFloor(seen.Generation))
	err := e.client.Status().Apply(ctx, configuration, evidenceManager, client.ForceOwnership)
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		// The lease went away, or somebody raised the floor further.
		return nil
	}
	if err != nil {
		return fmt.Errorf("apply generationFloor: %w", err)
	}
	e.recorder.Eventf(lease, nil, corev1.EventTypeWarning, eventGenerationAhead, eventActionRaiseFloor,
		"%s shows generation %d, the lease has %d: the store was restored or the object came from elsewhere; the next acquisition starts above",
		seen.Object, seen.Generation, ptr.Deref(lease.Status.Generation, 0))
	return nil
}
