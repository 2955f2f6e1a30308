// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
	"github.com/fencedlease/fencedlease/internal/probe"
)

// Names of the objects of the registration.
const (
	// GuardsName is the name of both webhook configurations.
	GuardsName = "fencedlease-guards"
	// MarksName is the name of the policy, and of its binding, by which no mark falls.
	MarksName = "fencedlease-marks"
	// StampsName is the name of the policy, and of its binding, that turns tokens in a request's extra into marks.
	StampsName = "fencedlease-stamps"
	// ValidationName is the name of the webhook configuration for FencedLeases themselves. It is part of the
	// installation; the controller only gives it the CA bundle.
	ValidationName = "fencedlease-validation"
	// CRDName is the name of the definition that owns the registration.
	CRDName = "fencedleases." + v1alpha1.GroupName
)

const (
	// GuardsHashAnnotation holds a hash of the FencedLeases that the registration was built from and of their spec
	// generations. The controller sets it, and keeps the paths of the webhooks while it stays the same.
	GuardsHashAnnotation = "registration.fencedlease.io/guards"
	// ContentHashAnnotation holds the hash of the registration's content, which probes ask for. It does not cover the CA
	// bundle, so that a rotation of certificates does not question what is in force.
	ContentHashAnnotation = "registration.fencedlease.io/content"

	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "fencedlease"

	webhookTimeoutSeconds = 5
)

// Endpoint is where API servers reach the webhook: by URL if it is set, else by Service.
type Endpoint struct {
	// URL is https://<host>[:<port>], without a path.
	URL string
	// ServiceNamespace, ServiceName and ServicePort name the Service. The port defaults to 443.
	ServiceNamespace, ServiceName string
	ServicePort                   int32
}

// clientConfig returns how API servers call a path.
func (e Endpoint) clientConfig(path string, bundle []byte) admissionv1.WebhookClientConfig {
	if e.URL != "" {
		url := strings.TrimSuffix(e.URL, "/") + path
		return admissionv1.WebhookClientConfig{URL: &url, CABundle: bundle}
	}
	port := e.ServicePort
	if port == 0 {
		port = 443
	}
	return admissionv1.WebhookClientConfig{
		Service:  &admissionv1.ServiceReference{Namespace: e.ServiceNamespace, Name: e.ServiceName, Path: &path, Port: &port},
		CABundle: bundle,
	}
}

// Input is all that a registration is built from.
type Input struct {
	// Leases are the FencedLeases of all namespaces, in any order. They are not changed.
	Leases []v1alpha1.FencedLease
	// Kinds says of each guarded resource what it is. A resource that is not in it is taken for missing.
	Kinds map[schema.GroupResource]guardkind.Kind
	// CRDUID is the uid of the owner of all objects.
	CRDUID types.UID
	// Namespace is the manager's own, which is never guarded.
	Namespace string
	// SystemWriters are the users whose DELETEs never call the webhook, so that namespaces can go and owners can be
	// collected while every manager is down.
	SystemWriters []string
	// Sealer is the manager's own user, whose stamps become marks and never call the webhook. Empty means nobody.
	Sealer string
	// Endpoint and Bundle are where API servers reach the webhook, and the certificates by which they know it.
	Endpoint Endpoint
	Bundle   []byte
	// MinVersion is the resourceVersion at the end of the webhooks' paths: a replica answers only once it has seen
	// FencedLeases as new as that.
	MinVersion string
}

// Registration is the objects that make API servers call the webhook and evaluate the policies, complete with all
// defaults, so that they can be compared with live ones.
type Registration struct {
	Guards        *admissionv1.ValidatingWebhookConfiguration
	Status        *admissionv1.MutatingWebhookConfiguration
	Marks         *admissionv1.ValidatingAdmissionPolicy
	MarksBinding  *admissionv1.ValidatingAdmissionPolicyBinding
	Stamps        *admissionv1.MutatingAdmissionPolicy
	StampsBinding *admissionv1.MutatingAdmissionPolicyBinding
	// Hash is the hash of the content, which probes ask for.
	Hash string
	// Problems are the guards, by the uid of their lease, that could not be installed as they are written.
	Problems map[types.UID][]Problem
}

// Build returns the registration of an input. The order of its leases and guards makes no difference.
func Build(in Input) (Registration, error) {
	resolved := resolve(in)
	guardsHash := GuardsHash(in.Leases)

	// The hash is that of the objects with an empty one and without the CA bundle.
	unhashed := in
	unhashed.Bundle = nil
	content, err := json.Marshal(assemble(unhashed, resolved, guardsHash, ""))
	if err != nil {
		return Registration{}, fmt.Errorf("hash registration: %w", err)
	}
	sum := sha256.Sum256(content)
	registration := assemble(in, resolved, guardsHash, hex.EncodeToString(sum[:])[:probe.HashLength])
	registration.Problems = resolved.problems
	return registration, nil
}

// assemble builds the objects around a hash.
func assemble(in Input, resolved resolution, guardsHash, hash string) Registration {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name:            name,
			Labels:          map[string]string{managedByLabel: managedBy},
			Annotations:     map[string]string{GuardsHashAnnotation: guardsHash, ContentHashAnnotation: hash},
			OwnerReferences: []metav1.OwnerReference{ownedBy(in.CRDUID)},
		}
	}
	// A binding never changes, so that the policy alone says what is in force.
	bindingMeta := func(name string) metav1.ObjectMeta {
		m := meta(name)
		m.Annotations = nil
		return m
	}
	return Registration{
		Guards:        guardsConfiguration(in, resolved, meta(GuardsName), hash),
		Status:        statusConfiguration(in, resolved, meta(GuardsName), hash),
		Marks:         marksPolicy(in, resolved, meta(MarksName), hash),
		MarksBinding:  marksBinding(bindingMeta(MarksName)),
		Stamps:        stampsPolicy(in, resolved, meta(StampsName), hash),
		StampsBinding: stampsBinding(bindingMeta(StampsName)),
		Hash:          hash,
	}
}

// GuardsHash returns a hash that changes when a FencedLease appears, goes or changes its spec, and never on renewals.
func GuardsHash(leases []v1alpha1.FencedLease) string {
	lines := make([]string, 0, len(leases))
	for i := range leases {
		lines = append(lines, fmt.Sprintf("%s %d", leases[i].UID, leases[i].Generation))
	}
	slices.Sort(lines)
	return shortHash(strings.Join(lines, "\n"))
}

func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:probe.HashLength]
}
