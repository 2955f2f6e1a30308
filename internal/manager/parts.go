// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller"
	"github.com/fencedlease/fencedlease/internal/guardkind"
	"github.com/fencedlease/fencedlease/internal/leaseview"
	"github.com/fencedlease/fencedlease/internal/webhook/fencing"
	validation "github.com/fencedlease/fencedlease/internal/webhook/v1alpha1"
)

// parts are what the manager consists of, in the order in which they are built.
type parts struct {
	options *Options
	deps    Dependencies
	ending  *drain

	clients      clients
	certificates certificates
	bundles      bundles
	manager      ctrl.Manager
	reports      *controller.Reports
	evidence     *fencing.Evidence
	view         *leaseview.View
	holders      *leaseview.Holders

	measures measures
}

// build makes all parts and connects them.
func (p *parts) build() error {
	p.measures = newMeasures(p.deps.Clock)
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	// Reviews wait for these clients: no rate limit of the client's own.
	if p.clients, err = newClients(unlimited(p.deps.Config), scheme); err != nil {
		return err
	}
	for _, step := range []func() error{
		p.buildCertificates, p.buildLeaseView, p.buildWebhooks, p.buildControllers, p.addRunnables, p.addChecks, p.registerMetrics,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (p *parts) buildLeaseView() error {
	p.reports = controller.NewReports()
	p.evidence = fencing.NewEvidence(p.clients.live, p.manager.GetEventRecorder("fencedlease-webhook"), p.deps.Clock)

	config := unlimited(p.deps.Config)
	reader, err := leaseview.NewReader(config)
	if err != nil {
		return fmt.Errorf("build reader of leases: %w", err)
	}
	source, err := leaseview.NewSource(config)
	if err != nil {
		return fmt.Errorf("build watch of leases: %w", err)
	}
	p.holders = p.measures.holders
	p.view, err = leaseview.New(leaseview.Options{
		Reader: reader, Source: source, Clock: p.deps.Clock, Metrics: p.measures.view, Holders: p.holders,
		OnBehind: func(key types.NamespacedName, cached, _ *v1alpha1.FencedLease) {
			generation := ptr.Deref(cached.Status.Generation, 0)
			p.reports.Report(controller.Observed{Lease: key, Generation: generation, Evidence: controller.EvidenceStore})
			p.evidence.GenerationAhead(fencing.Sighting{Lease: key, Generation: generation, Object: "the lease as seen before"})
		},
	})
	if err != nil {
		return fmt.Errorf("build view of leases: %w", err)
	}
	return nil
}

func (p *parts) buildWebhooks() error {
	handler := fencing.NewHandler(fencing.Options{
		Leases:             p.view,
		Namespaces:         fencing.NewNamespaces(p.manager.GetCache(), p.clients.live),
		Objects:            fencing.NewObjects(p.clients.metadata),
		Permissions:        fencing.NewPermissions(p.clients.kube.AuthorizationV1().SubjectAccessReviews()),
		Observer:           observers{p.evidence, p.reports},
		Metrics:            p.measures.reviews,
		Clock:              p.deps.Clock,
		System:             p.options.systemWriters(),
		ExcludedNamespaces: []string{metav1.NamespaceSystem, p.options.Namespace},
		Admitted:           p.holders.Admitted,
	})
	if err := fencing.Register(handler, p.manager.GetWebhookServer().Register); err != nil {
		return err
	}
	err := validation.SetupWithManager(p.manager, validation.Options{
		Namespace: p.options.Namespace,
		// Not remembered: every write of a lease is judged by what is installed then.
		Kinds: guardkind.NewLive(p.manager.GetAPIReader()),
	})
	if err != nil {
		return fmt.Errorf("build webhook for FencedLeases: %w", err)
	}
	return nil
}

func (p *parts) buildControllers() error {
	changes := make(chan event.GenericEvent)
	err := controller.SetupWithManager(p.manager, controller.Options{
		Namespace:          p.options.Namespace,
		Endpoint:           p.options.endpoint(),
		Bundle:             p.bundles.Bundle,
		BundleChanged:      changes,
		SystemWriters:      p.options.SystemCollectors,
		Reports:            p.reports,
		Metrics:            p.measures.controller,
		SealMetrics:        p.measures.seals,
		SealParallel:       p.options.SealParallel,
		Clock:              p.deps.Clock,
		SkipNameValidation: true,
	})
	if err != nil {
		return fmt.Errorf("build controllers: %w", err)
	}
	return p.manager.Add(elected(func(ctx context.Context) error {
		return forward(ctx, p.bundles.Subscribe(), changes)
	}))
}

func (p *parts) addRunnables() error {
	return errors.Join(
		p.manager.Add(p.certificates), p.manager.Add(p.bundles), p.manager.Add(p.evidence),
	)
}

func (p *parts) registerMetrics() error {
	for _, c := range p.measures.collectors(p.certificates) {
		if err := p.deps.Registry.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// forward tells of each change of the bundle until the context ends.
func forward(ctx context.Context, from <-chan struct{}, to chan<- event.GenericEvent) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-from:
		}
		select {
		case <-ctx.Done():
			return nil
		case to <- event.GenericEvent{Object: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}}}:
		}
	}
}

// elected is a runnable of the elected replica.
type elected func(ctx context.Context) error

var _ ctrlmanager.LeaderElectionRunnable = elected(nil)

func (e elected) Start(ctx context.Context) error { return e(ctx) }
func (elected) NeedLeaderElection() bool          { return true }

// observers hand what reviews show to this replica's own evidence, and to the controllers, if they run here.
type observers struct {
	evidence *fencing.Evidence
	reports  *controller.Reports
}

func (o observers) GenerationAhead(s fencing.Sighting) {
	evidence := controller.EvidenceRequest
	if s.Mark {
		evidence = controller.EvidenceMark
	}
	o.reports.Report(controller.Observed{Lease: s.Lease, Generation: s.Generation, Evidence: evidence, Object: s.Object})
	o.evidence.GenerationAhead(s)
}

func (o observers) Overridden(lease *v1alpha1.FencedLease, user, object, reason string) {
	o.evidence.Overridden(lease, user, object, reason)
}
