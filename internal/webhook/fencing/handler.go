// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/internal/probe"
)

// Leases is what the handler knows of leases. See package leaseview.
type Leases interface {
	// Guarding returns, from the watched copy, the leases with a guard on a resource that may reach a namespace.
	Guarding(gr schema.GroupResource, namespace string) ([]*v1alpha1.FencedLease, error)
	// Fresh returns a lease as read from the store by a read that began after the call did.
	Fresh(ctx context.Context, key types.NamespacedName) (*v1alpha1.FencedLease, error)
	// WaitFor returns when the watched copy has reached a resourceVersion.
	WaitFor(ctx context.Context, resourceVersion string) error
}

// Objects reads the metadata of guarded objects from the store, linearizably.
type Objects interface {
	Get(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (*metav1.PartialObjectMetadata, error)
}

// Permissions asks the API server what a user may do.
type Permissions interface {
	// MayBypass reports whether the user has the verb bypass on a lease.
	MayBypass(ctx context.Context, user authenticationv1.UserInfo, lease types.NamespacedName) (bool, error)
}

// Observer is told what reviews show beyond their verdicts. Its methods return at once and are not called for dry runs.
type Observer interface {
	// GenerationAhead tells of a generation above a lease's, seen in a token or a mark.
	GenerationAhead(s Sighting)
	// Overridden tells of a write that passed without a token, and of the reason that its writer gave.
	Overridden(lease *v1alpha1.FencedLease, user, object, reason string)
}

// Options are what a Handler works with. All fields are required but ExcludedNamespaces and Admitted.
type Options struct {
	Leases      Leases
	Namespaces  Namespaces
	Objects     Objects
	Permissions Permissions
	Observer    Observer
	Metrics     *Metrics
	Clock       clock.PassiveClock
	// System are the writers of the control plane that need no token.
	System fence.SystemWriters
	// ExcludedNamespaces are namespaces that guards with a namespaceSelector never reach.
	ExcludedNamespaces []string
	// Admitted is told of each write that was admitted with the current token of a lease, and of its generation. It
	// returns at once and is not called for dry runs.
	Admitted func(lease types.NamespacedName, generation int64)
}

// Handler judges reviews of guarded writes.
type Handler struct {
	options Options
}

var _ admission.Handler = &Handler{}

// NewHandler returns a handler.
func NewHandler(options Options) *Handler { return &Handler{options: options} }

// Handle judges one review. It answers every review: a malformed one, or one that cannot be judged now, is refused.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	begin := h.options.Clock.Now()
	r, err := decode(req, h.options.System)
	if err != nil {
		h.options.Metrics.malformed()
		return refuseMalformed(err)
	}
	if hash, is := probeOf(r); is {
		return answerProbe(hash)
	}
	verdicts, err := h.judge(ctx, r, req.UserInfo)
	answer := answerOf(r, verdicts)
	switch {
	case err != nil && routeOf(ctx).audit:
		// Audit refuses nothing, not even for want of an answer. Leases that enforce ask for reviews of their own.
		logf.FromContext(ctx).Error(err, "Cannot judge a write by FencedLeases in Audit", "object", klog.KRef(r.namespace, r.name))
	case err != nil:
		answer = refuseUnavailable(r, err)
	}
	h.tellAdmitted(r, answer, verdicts)
	h.options.Metrics.observe(r, verdicts, err, h.options.Clock.Since(begin))
	if log := logf.FromContext(ctx).V(1); log.Enabled() {
		log.Info("Judged a guarded write", "requestID", req.UID, "resource", r.resource.GroupResource().String(), "subresource", r.subresource,
			"operation", r.write.Operation, "object", klog.KRef(r.namespace, r.name), "user", r.write.Writer.Username,
			"dryRun", r.dryRun, "allowed", answer.Allowed, "verdicts", summary(verdicts), "unavailable", errorText(err))
	}
	return answer
}

func probeOf(r *review) (hash string, is bool) {
	if r.resource.Group != v1alpha1.GroupName || r.resource.Resource != v1alpha1.Resource.Resource || !r.dryRun {
		return "", false
	}
	_, hash, is = probe.Parse(r.name)
	return hash, is
}

// judge returns the verdict of every lease that guards the object, in the order of their names. An error means that no
// correct answer is possible.
func (h *Handler) judge(ctx context.Context, r *review, user authenticationv1.UserInfo) ([]fence.Verdict, error) {
	if err := h.options.Leases.WaitFor(ctx, guardsVersion(ctx)); err != nil {
		return nil, fmt.Errorf("wait until this replica has seen the guards that the API server calls for: %w", err)
	}
	// The watched copy: at least as new as the registration that made the API server call.
	candidates, err := h.options.Leases.Guarding(r.resource.GroupResource(), r.namespace)
	if err != nil {
		return nil, fmt.Errorf("look up guards: %w", err)
	}
	if len(candidates) == 0 {
		return nil, nil
	}
	if r.subresource == fence.SubresourceScale {
		switch err := h.showStored(ctx, r); {
		case err != nil && !slices.ContainsFunc(candidates, enforces):
			logf.FromContext(ctx).Error(err, "Cannot judge a write by FencedLeases in Audit")
			return nil, nil
		case err != nil:
			return nil, err
		}
	}
	slices.SortFunc(candidates, func(a, b *v1alpha1.FencedLease) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var verdicts []fence.Verdict
	var failures []error
	for _, lease := range candidates {
		verdict, guarded, err := h.judgeBy(ctx, r, user, lease)
		switch {
		case err != nil && !enforces(lease):
			// Audit refuses nothing, not even for want of an answer. The copy is as new as the registration, and a lease
			// enforces only from the registration of that spec on, so that an old copy opens nothing that is in force.
			logf.FromContext(ctx).Error(err, "Cannot judge a write by a FencedLease in Audit", "fencedLease", klog.KObj(lease))
			continue
		case err != nil:
			failures = append(failures, err)
			continue
		}
		if guarded {
			verdicts = append(verdicts, verdict)
		}
	}
	// A refusal that is certain stands, whatever else could not be found out.
	if err := errors.Join(failures...); err != nil && !slices.ContainsFunc(verdicts, refuses) {
		return nil, err
	}
	return verdicts, nil
}

func enforces(lease *v1alpha1.FencedLease) bool {
	return lease.Spec.Enforcement != v1alpha1.EnforcementAudit
}

// showStored makes a scale write judgeable: a Scale shows no annotations, so the object itself is read, and must be the
// one that the commit is conditioned on.
func (h *Handler) showStored(ctx context.Context, r *review) error {
	// Linearizable: a GET without a resourceVersion.
	stored, err := h.options.Objects.Get(ctx, r.resource, r.namespace, r.name)
	if err != nil {
		return fmt.Errorf("get the object behind its scale: %w", err)
	}
	if stored.ResourceVersion != r.storedVersion {
		return fmt.Errorf("the object behind the scale has changed from resourceVersion %s to %s: try again",
			r.storedVersion, stored.ResourceVersion)
	}
	r.showStored(stored)
	return nil
}

// judgeBy returns the verdict of one lease. It first decides by the watched copy, of any age, which can refuse, and can admit
// under a sealed term only (see fence.SealCovers); it reads the lease from the store where that is not enough.
func (h *Handler) judgeBy(
	ctx context.Context, r *review, user authenticationv1.UserInfo, cached *v1alpha1.FencedLease,
) (verdict fence.Verdict, guarded bool, err error) {
	guards, err := h.matching(ctx, cached, r)
	if err != nil || len(guards) == 0 {
		return fence.Verdict{}, false, err
	}
	verdict = fence.Decide(r.write, fence.View{
		Lease: fence.LeaseOf(cached), Origin: fence.Cached,
		// By the copy's guards. They are at least as new as those that were in force when a seal looked through the objects.
		SealCovers: fence.SealCovers(guards, r.resource.GroupResource(), r.subresource),
	})
	key := types.NamespacedName{Namespace: cached.Namespace, Name: cached.Name}
	if verdict.Outcome != fence.NeedsRead {
		h.tellAhead(key, verdict, r)
		return verdict, true, nil
	}
	lease, err := h.options.Leases.Fresh(ctx, key)
	switch {
	case apierrors.IsNotFound(err):
		return fence.Decide(r.write, fence.View{Lease: goneLease(cached), Origin: fence.Linearizable}), true, nil
	case err != nil:
		return fence.Verdict{}, false, fmt.Errorf("read FencedLease %s: %w", key, err)
	}
	if guards, err = h.matching(ctx, lease, r); err != nil {
		return fence.Verdict{}, false, err
	}
	if len(guards) == 0 {
		return fence.Decide(r.write, fence.View{Lease: goneLease(cached), Origin: fence.Linearizable}), true, nil
	}
	view := fence.View{
		Lease:       fence.LeaseOf(lease),
		Origin:      fence.Linearizable,
		MustPresent: fence.MustPresent(guards, lease.Namespace, r.write.Writer),
	}
	verdict = fence.Decide(r.write, view)
	if verdict, err = h.override(ctx, r, user, lease, view, verdict); err != nil {
		return fence.Verdict{}, false, err
	}
	h.tellAhead(key, verdict, r)
	return verdict, true, nil
}

// tellAhead reports a generation above the lease's. By a cached lease it may be no more than a lag: whoever acts on it
// reads the lease first.
func (h *Handler) tellAhead(key types.NamespacedName, verdict fence.Verdict, r *review) {
	if verdict.Ahead > 0 && !r.dryRun {
		h.options.Observer.GenerationAhead(Sighting{
			Lease: key, Generation: verdict.Ahead, Mark: verdict.Ahead > verdict.Presented.Generation, Object: r.object(),
		})
	}
}

// tellAdmitted tells of the leases whose current token has let the write pass.
func (h *Handler) tellAdmitted(r *review, answer admission.Response, verdicts []fence.Verdict) {
	if h.options.Admitted == nil || r.dryRun || !answer.Allowed {
		return
	}
	for _, v := range verdicts {
		if v.Reason == fence.CurrentToken || v.Reason == fence.SealedTerm {
			h.options.Admitted(types.NamespacedName{Namespace: v.Lease.Namespace, Name: v.Lease.Name}, v.Lease.Generation)
		}
	}
}

func goneLease(lease *v1alpha1.FencedLease) fence.Lease {
	l := fence.LeaseOf(lease)
	l.Gone = true
	return l
}

// override decides again where a write without a token is refused, says why it must pass, and may.
func (h *Handler) override(
	ctx context.Context, r *review, user authenticationv1.UserInfo, lease *v1alpha1.FencedLease, view fence.View, verdict fence.Verdict,
) (fence.Verdict, error) {
	if verdict.Reason != fence.MissingToken && verdict.Reason != fence.FinalDelete {
		return verdict, nil
	}
	reason := fence.OverrideReason(r.write, lease.Name)
	if reason == "" {
		return verdict, nil
	}
	key := types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}
	permitted, err := h.options.Permissions.MayBypass(ctx, user, key)
	if err != nil {
		return verdict, fmt.Errorf("ask whether %s may bypass FencedLease %s: %w", user.Username, key, err)
	}
	write := r.write
	write.Override = fence.Override{Reason: reason, Permitted: permitted}
	verdict = fence.Decide(write, view)
	if verdict.Reason == fence.Overridden && !r.dryRun {
		h.options.Observer.Overridden(lease, user.Username, r.object(), reason)
	}
	return verdict, nil
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
