// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/cert"
	"github.com/fencedlease/fencedlease/internal/controller"
	"github.com/fencedlease/fencedlease/internal/guardkind"
	"github.com/fencedlease/fencedlease/internal/leaseview"
	"github.com/fencedlease/fencedlease/internal/webhook/fencing"
	validation "github.com/fencedlease/fencedlease/internal/webhook/v1alpha1"
)

// secretName is the name of the Secret that holds the CA.
const secretName = "fencedlease-webhook-cert"

// parts are what the manager consists of, in the order in which they are built.
type parts struct {
	options *Options
	deps    Dependencies
	ending  *drain

	clients   clients
	authority *cert.Authority
	rotator   *cert.Rotator
	manager   ctrl.Manager
	reports   *controller.Reports
	evidence  *fencing.Evidence
	view      *leaseview.View
	holders   *leaseview.Holders

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

// buildCertificates makes the serving certificates, and the manager, whose servers need them.
func (p *parts) buildCertificates() error {
	dns, ips := p.options.names()
	recorder := &secretRecorder{secret: &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.options.Namespace, Name: secretName},
	}}
	var err error
	p.authority, err = cert.NewAuthority(cert.Options{
		Secrets:          p.clients.kube.CoreV1().Secrets(p.options.Namespace),
		Name:             secretName,
		Labels:           map[string]string{"app.kubernetes.io/name": "fencedlease", "app.kubernetes.io/managed-by": "fencedlease"},
		DNSNames:         dns,
		IPs:              ips,
		InstalledBundles: p.installedBundles,
		Clock:            p.deps.Clock,
		Recorder:         recorder,
		CALife:           p.options.CALife,
		LeafLife:         p.options.LeafLife,
		SettleMargin:     p.options.CertSettle,
		ClockSkew:        p.options.clockSkew(),
		CheckInterval:    p.options.CertCheck,
		RereadInterval:   p.options.CertReread,
	})
	if err != nil {
		return fmt.Errorf("build certificates: %w", err)
	}
	p.rotator = cert.NewRotator(p.authority)
	if p.manager, err = p.newManager(p.authority.GetCertificate); err != nil {
		return err
	}
	recorder.recorder = p.manager.GetEventRecorder(program)
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
		Bundle:             p.rotator.Bundle,
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
		return forward(ctx, p.rotator.Subscribe(), changes)
	}))
}

func (p *parts) addRunnables() error {
	return errors.Join(
		p.manager.Add(p.authority), p.manager.Add(p.rotator), p.manager.Add(p.evidence),
	)
}

func (p *parts) registerMetrics() error {
	for _, c := range p.measures.collectors(p.authority) {
		if err := p.deps.Registry.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// installedBundles reads, from the API server, what every webhook configuration of the product trusts now.
func (p *parts) installedBundles(ctx context.Context) ([][]byte, error) {
	var bundles [][]byte
	for _, name := range []string{controller.GuardsName, controller.ValidationName} {
		live := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		switch err := p.clients.live.Get(ctx, client.ObjectKey{Name: name}, live); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("get ValidatingWebhookConfiguration %s: %w", name, err)
		}
		for i := range live.Webhooks {
			bundles = append(bundles, live.Webhooks[i].ClientConfig.CABundle)
		}
	}
	live := &admissionregistrationv1.MutatingWebhookConfiguration{}
	switch err := p.clients.live.Get(ctx, client.ObjectKey{Name: controller.GuardsName}, live); {
	case apierrors.IsNotFound(err):
		return bundles, nil
	case err != nil:
		return nil, fmt.Errorf("get MutatingWebhookConfiguration %s: %w", controller.GuardsName, err)
	}
	for i := range live.Webhooks {
		bundles = append(bundles, live.Webhooks[i].ClientConfig.CABundle)
	}
	return bundles, nil
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

// secretRecorder records what happens to certificates as events of their Secret.
type secretRecorder struct {
	recorder events.EventRecorder
	secret   *corev1.Secret
}

func (r *secretRecorder) Event(eventType, reason, message string) {
	r.recorder.Eventf(r.secret, nil, eventType, reason, "Rotate", "%s", message)
}
