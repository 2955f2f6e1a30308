// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/tls"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fencedlease/fencedlease/internal/cert"
	"github.com/fencedlease/fencedlease/internal/controller"
)

// secretName is the name of the Secret that holds the CA.
const secretName = "fencedlease-webhook-cert"

// certificates are what every replica serves by.
type certificates interface {
	ctrlmanager.Runnable
	ctrlmanager.LeaderElectionRunnable
	Collector
	GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error)
	Ready() error
}

// bundles are what the elected replica has the webhook configurations trust.
type bundles interface {
	ctrlmanager.Runnable
	ctrlmanager.LeaderElectionRunnable
	Bundle() []byte
	Subscribe() <-chan struct{}
}

// buildCertificates makes the serving certificates, and the manager, whose servers need them.
func (p *parts) buildCertificates() error {
	build := p.buildOwnCertificates
	if p.options.WebhookCertPath != "" {
		build = p.buildFileCertificates
	}
	record, err := build()
	if err != nil {
		return fmt.Errorf("build certificates: %w", err)
	}
	if p.manager, err = p.newManager(p.certificates.GetCertificate); err != nil {
		return err
	}
	record(p.manager.GetEventRecorder(program))
	return nil
}

// buildFileCertificates makes parts that serve certificates which somebody else makes.
func (p *parts) buildFileCertificates() (record func(events.EventRecorder), err error) {
	files, err := cert.NewFiles(cert.FilesOptions{
		Dir:              p.options.WebhookCertPath,
		Hosts:            []string{p.options.host()},
		InstalledBundles: p.installedBundles,
		Clock:            p.deps.Clock,
		SettleMargin:     p.options.CertSettle,
		CheckInterval:    p.options.CertCheck,
	})
	if err != nil {
		return nil, err
	}
	p.certificates, p.bundles = files, cert.NewFileBundles(files)
	return func(events.EventRecorder) {}, nil
}

// buildOwnCertificates makes parts that make certificates themselves.
func (p *parts) buildOwnCertificates() (record func(events.EventRecorder), err error) {
	dns, ips := p.options.names()
	recorder := &secretRecorder{secret: &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.options.Namespace, Name: secretName},
	}}
	authority, err := cert.NewAuthority(cert.Options{
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
		return nil, err
	}
	p.certificates, p.bundles = authority, cert.NewRotator(authority)
	return func(r events.EventRecorder) { recorder.recorder = r }, nil
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

// secretRecorder records what happens to certificates as events of their Secret.
type secretRecorder struct {
	recorder events.EventRecorder
	secret   *corev1.Secret
}

func (r *secretRecorder) Event(eventType, reason, message string) {
	r.recorder.Eventf(r.secret, nil, eventType, reason, "Rotate", "%s", message)
}
