// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/internal/guardkind"
)

// Options are what the controllers need of their surroundings.
type Options struct {
	// Namespace is the manager's own, in which probes are made. Required.
	Namespace string

	// Endpoint is where API servers reach the webhook. Required.
	Endpoint Endpoint

	// Bundle returns the certificates, in PEM, by which API servers know the webhook. Nothing is registered while it is
	// empty. Required.
	Bundle func() []byte

	// BundleChanged tells that Bundle returns something else. Optional: without it a change is noticed at the next probe.
	BundleChanged <-chan event.GenericEvent

	// SystemWriters are the users whose deletes never call the webhook. Defaults to the garbage collector and the namespace
	// controller.
	SystemWriters []string

	// User is the manager's own user, whose stamps become marks. Defaults to whom the API server takes the manager for.
	User string

	// Reports are what this replica's webhook and lease view observe. Defaults to none.
	Reports *Reports

	// Metrics are not registered here. Default: metrics that nobody sees.
	Metrics *Metrics

	// SealMetrics are those of seals. They are not registered here. Default: metrics that nobody sees.
	SealMetrics *seal.Metrics

	// SealParallel is how many objects are stamped at once, for all leases together. Defaults to seal.DefaultParallel.
	SealParallel int

	// Clock defaults to the real one.
	Clock clock.PassiveClock

	// Prober defaults to one that asks every endpoint of the Service kubernetes directly.
	Prober Prober

	// Debounce is how long changes are collected before the registration is written. Defaults to 100 ms.
	Debounce time.Duration

	// ProbeInterval is the pause between probes until a registration is in force, ReprobeInterval that after it, and
	// ProbeTimeout bounds one of them. They default to 500 ms, 1 min and 5 s.
	ProbeInterval, ReprobeInterval, ProbeTimeout time.Duration

	// RescanInterval is the pause between looks through guarded objects while some cannot be read or carry an implausible
	// mark. Defaults to 10 min.
	RescanInterval time.Duration

	// SkipNameValidation allows several managers in one process, as tests need it.
	SkipNameValidation bool
}

func (o *Options) setDefaults(mgr ctrl.Manager) error {
	if o.Namespace == "" || o.Bundle == nil || o.Endpoint == (Endpoint{}) {
		return errors.New("set up controllers: Namespace, Endpoint and Bundle are required")
	}
	if o.SystemWriters == nil {
		o.SystemWriters = fence.DefaultSystemWriters().Collectors
	}
	if o.Reports == nil {
		o.Reports = NewReports()
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if o.SealMetrics == nil {
		o.SealMetrics = seal.NewMetrics()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&o.Debounce, 100 * time.Millisecond},
		{&o.ProbeInterval, 500 * time.Millisecond},
		{&o.ReprobeInterval, time.Minute},
		{&o.ProbeTimeout, 5 * time.Second},
		{&o.RescanInterval, 10 * time.Minute},
	} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
	if o.Prober == nil {
		o.Prober = NewProber(mgr.GetConfig(), o.Namespace, EndpointsOf(mgr.GetAPIReader()), o.ProbeTimeout)
	}
	return nil
}

// SetupWithManager adds the controllers to a manager. They run on the elected replica.
func SetupWithManager(mgr ctrl.Manager, opts Options) error {
	if err := opts.setDefaults(mgr); err != nil {
		return err
	}
	objects, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("create client for the metadata of guarded objects: %w", err)
	}
	kinds := guardkind.NewRemembered(guardkind.NewLive(mgr.GetAPIReader()))
	found := &installation{}
	wakeups := make(chan event.GenericEvent)

	r := &registrar{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), kinds: kinds, prober: opts.Prober, opts: opts, found: found,
		wake: func(ctx context.Context, lease *v1alpha1.FencedLease) {
			select {
			case wakeups <- event.GenericEvent{Object: lease}:
			case <-ctx.Done():
			}
		},
	}
	if err := r.setup(mgr, kinds.Forget); err != nil {
		return fmt.Errorf("set up controller of the registration: %w", err)
	}
	events := eventWriter{mgr.GetEventRecorder("fencedlease-controller")}
	sealer, err := newSealer(mgr, opts, events, wakeups)
	if err != nil {
		return err
	}
	l := &leaseReconciler{
		writer: mgr.GetClient(), live: mgr.GetAPIReader(),
		marks: &markReader{metadata: objects, live: mgr.GetAPIReader(), kinds: kinds, namespace: opts.Namespace},
		found: found, sealer: sealer, targets: targetReader{kinds: guardkind.NewLive(mgr.GetAPIReader()), namespace: opts.Namespace},
		reports: opts.Reports, events: events,
		metrics: opts.Metrics, clock: opts.Clock, rescan: opts.RescanInterval, scans: map[client.ObjectKey]scan{},
	}
	if err := l.setup(mgr, opts, wakeups); err != nil {
		return fmt.Errorf("set up controller of FencedLeases: %w", err)
	}
	return nil
}

// newSealer adds what seals to a manager. Its requests have no limit on this side: it waits for each of them, so the API
// server's priority levels, and the number of those at once, are the limit.
func newSealer(mgr ctrl.Manager, opts Options, events eventWriter, wakeups chan<- event.GenericEvent) (*seal.Sealer, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS = -1
	objects, err := metadata.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("create client that stamps guarded objects: %w", err)
	}
	sealer := seal.New(seal.Options{
		Objects: objects, Parallel: opts.SealParallel, Metrics: opts.SealMetrics, Clock: opts.Clock,
		Wake: func(ctx context.Context, key types.NamespacedName) {
			lease := &v1alpha1.FencedLease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			select {
			case wakeups <- event.GenericEvent{Object: lease}:
			case <-ctx.Done():
			}
		},
		Above: func(key types.NamespacedName, generation int64, object string) {
			opts.Reports.Report(Observed{Lease: key, Generation: generation, Evidence: EvidenceMark, Object: object})
		},
		Created: events.createdLate,
		Later:   events.olderMarks,
	})
	if err := mgr.Add(sealer); err != nil {
		return nil, fmt.Errorf("add sealer: %w", err)
	}
	return sealer, nil
}

// setup makes everything that the registration depends on wake its only key. Requests within Debounce become one pass.
func (r *registrar) setup(mgr ctrl.Manager, forgetKinds func()) error {
	key := reconcile.Request{NamespacedName: client.ObjectKey{Name: "registration"}}
	enqueue := func(q workqueue.TypedRateLimitingInterface[reconcile.Request]) { q.AddAfter(key, r.opts.Debounce) }
	onAny := func(before func()) handler.EventHandler {
		return handler.Funcs{
			CreateFunc: func(_ context.Context, _ event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				before()
				enqueue(q)
			},
			UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				before()
				enqueue(q)
			},
			DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				before()
				enqueue(q)
			},
			GenericFunc: func(_ context.Context, _ event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				before()
				enqueue(q)
			},
		}
	}
	nothing := func() {}
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool {
		switch o.GetName() {
		case GuardsName, MarksName, StampsName, ValidationName, DefinitionsName, RegistrationName:
			return true
		default:
			return false
		}
	})
	b := ctrl.NewControllerManagedBy(mgr).Named("registration").
		WithOptions(controller.Options{SkipNameValidation: &r.opts.SkipNameValidation}).
		Watches(&v1alpha1.FencedLease{}, onAny(nothing), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(objectOf(guardkind.CRDs), onAny(forgetKinds)).
		WatchesMetadata(objectOf(guardkind.APIServices), onAny(forgetKinds))
	// The objects themselves: what is deleted or changed by hand is healed.
	for _, o := range []client.Object{
		&admissionv1.ValidatingWebhookConfiguration{}, &admissionv1.MutatingWebhookConfiguration{},
		&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{},
		&admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{},
	} {
		b = b.Watches(o, onAny(nothing), builder.WithPredicates(ours))
	}
	if r.opts.BundleChanged != nil {
		b = b.WatchesRawSource(source.Channel(r.opts.BundleChanged, onAny(nothing)))
	}
	return b.Complete(r)
}

// setup makes everything but renewals wake a lease.
func (r *leaseReconciler) setup(mgr ctrl.Manager, opts Options, wakeups <-chan event.GenericEvent) error {
	return ctrl.NewControllerManagedBy(mgr).Named("fencedlease").
		WithOptions(controller.Options{SkipNameValidation: &opts.SkipNameValidation}).
		For(&v1alpha1.FencedLease{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: moreThanRenewed})).
		WatchesRawSource(source.Channel(wakeups, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(source.Channel(opts.Reports.events, &handler.EnqueueRequestForObject{})).
		Complete(r)
}

// moreThanRenewed reports whether an update is more than a renewal or a new credential.
func moreThanRenewed(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.FencedLease)
	if !ok {
		return true
	}
	after, ok := e.ObjectNew.(*v1alpha1.FencedLease)
	if !ok {
		return true
	}
	return before.UID != after.UID || before.Generation != after.Generation ||
		!before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
		!equality.Semantic.DeepEqual(lasting(before), lasting(after))
}

// lasting returns the part of a status that a holder does not write again and again.
func lasting(lease *v1alpha1.FencedLease) v1alpha1.FencedLeaseStatus {
	status := lease.Status
	status.RenewTime, status.AcquireTime, status.Credentials = nil, nil, nil
	return status
}

func objectOf(kind schema.GroupVersionKind) client.Object {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(kind)
	return o
}
