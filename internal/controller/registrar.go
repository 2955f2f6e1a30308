// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
	"github.com/fencedlease/fencedlease/internal/webhook/fencing"
)

// A name limits each right that it can limit; list and watch it cannot. Creating is limited too, since server-side apply
// names the object.
//
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=fencedlease-guards,verbs=get;create;patch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=fencedlease-validation,verbs=get;patch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=fencedlease-guards,verbs=get;create;patch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=fencedlease-marks,verbs=get;create;patch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings,resourceNames=fencedlease-stamps,verbs=get;create;patch;update
// +kubebuilder:rbac:groups=coordination.fencedlease.io,resources=fencedleases,verbs=get;list;watch

// firstVersion is before every FencedLease's resourceVersion. It ends the paths while there are none.
const firstVersion = "1"

// registrar keeps the registration equal to what the FencedLeases ask for, and finds out when it is in force.
type registrar struct {
	// client reads the watched copies and writes; live reads from the API server.
	client client.Client
	live   client.Reader
	kinds  guardkind.Classifier
	prober Prober
	opts   Options
	// found is what the conditions of FencedLeases are made of; wake makes their controller look at it.
	found *installation
	wake  func(ctx context.Context, lease *v1alpha1.FencedLease)

	// lastHash and lastVersion are the guards that were registered last, and the version at the end of the paths. Only
	// Reconcile uses them, and it runs once at a time.
	lastHash, lastVersion string
}

// Reconcile makes one pass. There is one key for everything: all leases are registered in the same objects.
func (r *registrar) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	bundle := r.opts.Bundle()
	if len(bundle) == 0 {
		// Without certificates every call would fail, and every guarded write with it. Their change wakes us.
		return ctrl.Result{RequeueAfter: r.opts.ProbeInterval}, nil
	}
	leases := &v1alpha1.FencedLeaseList{}
	// From the API server: a watched copy may never learn of a lease that a restore of the store has brought back, which says of
	// itself that its guards are in force.
	if err := r.live.List(ctx, leases); err != nil {
		return ctrl.Result{}, fmt.Errorf("list FencedLeases: %w", err)
	}
	in, installable, err := r.observe(ctx, leases.Items, bundle)
	if err != nil || !installable {
		return ctrl.Result{}, err
	}
	registration, err := Build(in)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("build registration: %w", err)
	}
	// First, as it says who may write the rest: a manager that runs under another user than the one before would be refused.
	unprotected := r.protect(ctx, in)
	done, err := r.apply(ctx, registration)
	if err == nil {
		_, err = injectBundle(ctx, r.client, r.live, r.opts.Endpoint, bundle)
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: r.opts.ProbeInterval}, nil
	}
	if err != nil {
		r.record(ctx, leases.Items, func(found *installation) { found.failed(err) })
		return ctrl.Result{}, err
	}
	probed, err := r.prober.Probe(ctx, registration.Hash)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("probe registration: %w", err)
	}
	r.opts.Metrics.probed(probed)
	r.opts.Metrics.skipped(registration.Problems)
	now := newInstalled(registration, leases.Items, done, probed)
	r.record(ctx, leases.Items, func(found *installation) { found.succeeded(now) })
	if unprotected != nil {
		return ctrl.Result{}, unprotected
	}
	return ctrl.Result{RequeueAfter: r.nextProbe(now.verdict)}, nil
}

// observe collects what a registration is built from. It is not installable while the definition that would own it is
// absent or going: then nothing may be left behind.
func (r *registrar) observe(ctx context.Context, leases []v1alpha1.FencedLease, bundle []byte) (in Input, installable bool, err error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(guardkind.CRDs)
	// From the watched copy: its uid changes only when the definition is created anew, which wakes us.
	if err := r.client.Get(ctx, client.ObjectKey{Name: CRDName}, crd); err != nil {
		if apierrors.IsNotFound(err) {
			return Input{}, false, nil
		}
		return Input{}, false, fmt.Errorf("get CustomResourceDefinition %s: %w", CRDName, err)
	}
	if !crd.DeletionTimestamp.IsZero() {
		return Input{}, false, nil
	}
	kinds, err := r.classify(ctx, leases)
	if err != nil {
		return Input{}, false, err
	}
	version, err := r.minVersion(ctx, leases)
	if err != nil {
		return Input{}, false, err
	}
	user, err := r.user(ctx)
	if err != nil {
		return Input{}, false, err
	}
	return Input{
		Leases: leases, Kinds: kinds, CRDUID: crd.UID, Namespace: r.opts.Namespace, SystemWriters: r.opts.SystemWriters, Sealer: user,
		Endpoint: r.opts.Endpoint, Bundle: bundle, MinVersion: version,
	}, true, nil
}

// user returns the manager's own user, which it asks the API server for once. All replicas have the same.
func (r *registrar) user(ctx context.Context) (string, error) {
	if r.opts.User != "" {
		return r.opts.User, nil
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := r.client.Create(ctx, review); err != nil {
		return "", fmt.Errorf("ask who the manager is: %w", err)
	}
	r.opts.User = review.Status.UserInfo.Username
	return r.opts.User, nil
}

func (r *registrar) classify(ctx context.Context, leases []v1alpha1.FencedLease) (map[schema.GroupResource]guardkind.Kind, error) {
	kinds := map[schema.GroupResource]guardkind.Kind{}
	for i := range leases {
		for j := range leases[i].Spec.Guards {
			for _, gr := range guardedResources(&leases[i].Spec.Guards[j]) {
				if _, known := kinds[gr]; known {
					continue
				}
				kind, err := r.kinds.Classify(ctx, gr.Group, gr.Resource)
				if err != nil {
					return nil, fmt.Errorf("classify %s: %w", gr, err)
				}
				kinds[gr] = kind
			}
		}
	}
	return kinds, nil
}

// minVersion returns the highest resourceVersion of the leases when their guards last changed, so that renewals rewrite
// nothing.
func (r *registrar) minVersion(ctx context.Context, leases []v1alpha1.FencedLease) (string, error) {
	highest := firstVersion
	for i := range leases {
		order, err := resourceversion.CompareResourceVersion(leases[i].ResourceVersion, highest)
		if err != nil {
			return "", fmt.Errorf("compare resourceVersions of FencedLeases: %w", err)
		}
		if order > 0 {
			highest = leases[i].ResourceVersion
		}
	}
	hash := GuardsHash(leases)
	if r.lastHash != hash {
		live, err := r.registered(ctx, hash)
		if err != nil {
			return "", err
		}
		r.lastHash, r.lastVersion = hash, live
	}
	// A version above every lease's comes from a store that has gone back since: no replica could ever reach it.
	if order, err := resourceversion.CompareResourceVersion(r.lastVersion, highest); err != nil || order > 0 {
		r.lastVersion = highest
	}
	return r.lastVersion, nil
}

// registered returns the version in the path of the live registration if it was built from these guards, or the empty
// string.
func (r *registrar) registered(ctx context.Context, guardsHash string) (string, error) {
	live := &admissionv1.ValidatingWebhookConfiguration{}
	// From the watched copy: if it is behind, the paths are written once more than needed.
	if err := r.client.Get(ctx, client.ObjectKey{Name: GuardsName}, live); err != nil {
		return "", client.IgnoreNotFound(fmt.Errorf("get ValidatingWebhookConfiguration %s: %w", GuardsName, err))
	}
	if live.Annotations[GuardsHashAnnotation] != guardsHash || len(live.Webhooks) == 0 {
		return "", nil
	}
	path, err := pathOf(live.Webhooks[0].ClientConfig)
	if err != nil {
		// Somebody has changed it by hand; it is written anew.
		return "", nil //nolint:nilerr // see above
	}
	version, _ := strings.CutPrefix(path, fencing.PathGuarded)
	return version, nil
}

// apply writes the objects that are different.
func (r *registrar) apply(ctx context.Context, registration Registration) (change, error) {
	done := unchanged
	for _, w := range wantedObjects(registration) {
		written, err := applyWhenDifferent(ctx, r.client, r.live, w, r.found.hash())
		if written != unchanged {
			r.opts.Metrics.applied(w.kind)
			ctrl.LoggerFrom(ctx).Info("Applied part of the registration", "kind", w.kind, "name", w.object.GetName(), "hash", registration.Hash)
		}
		if done = max(done, written); err != nil {
			return done, err
		}
	}
	return done, nil
}

// record changes what is known, and wakes the leases for which that makes a difference.
func (r *registrar) record(ctx context.Context, leases []v1alpha1.FencedLease, change func(*installation)) {
	before := make([]report, len(leases))
	for i := range leases {
		before[i] = r.found.of(&leases[i])
	}
	change(r.found)
	for i := range leases {
		if !reflect.DeepEqual(before[i], r.found.of(&leases[i])) {
			r.wake(ctx, &leases[i])
		}
	}
}

// nextProbe returns when to look again: soon until the registration is in force, rarely after that.
func (r *registrar) nextProbe(v verdict) time.Duration {
	if v.inForce {
		return r.opts.ReprobeInterval
	}
	return r.opts.ProbeInterval
}
