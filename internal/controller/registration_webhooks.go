// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/probe"
	"github.com/fencedlease/fencedlease/internal/webhook/fencing"
)

const (
	webhookDomain   = ".guards.fencedlease.io"
	probeEntry      = "probe" + webhookDomain
	reviewVersion   = "v1"
	matchProbe      = "probe"
	matchNotSystems = "not-deleted-by-the-system"
)

// guardsConfiguration calls the webhook for guarded writes other than those to /status.
func guardsConfiguration(in Input, resolved resolution, meta metav1.ObjectMeta, hash string) *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: meta,
		Webhooks: webhooksOf(in, fencing.PathGuarded, probe.Name(probe.Guards, hash), placedFor(resolved.placed, false),
			systemConditions(in.SystemWriters), admissionv1.Create, admissionv1.Update, admissionv1.Delete),
	}
}

// statusConfiguration calls the webhook for guarded updates of /status. It is a mutating one because the validating phase
// sees the old metadata there; the webhook patches nothing.
func statusConfiguration(in Input, resolved resolution, meta metav1.ObjectMeta, hash string) *admissionv1.MutatingWebhookConfiguration {
	configuration := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: meta}
	webhooks := webhooksOf(in, fencing.PathStatus, probe.Name(probe.Status, hash), placedFor(resolved.placed, true), nil, admissionv1.Update)
	for i := range webhooks {
		w := &webhooks[i]
		configuration.Webhooks = append(configuration.Webhooks, admissionv1.MutatingWebhook{
			Name: w.Name, Rules: w.Rules, NamespaceSelector: w.NamespaceSelector, MatchConditions: w.MatchConditions,
			ClientConfig:            w.ClientConfig,
			ObjectSelector:          w.ObjectSelector,
			FailurePolicy:           w.FailurePolicy,
			MatchPolicy:             w.MatchPolicy,
			SideEffects:             w.SideEffects,
			TimeoutSeconds:          w.TimeoutSeconds,
			AdmissionReviewVersions: w.AdmissionReviewVersions,
			ReinvocationPolicy:      ptr.To(admissionv1.NeverReinvocationPolicy),
		})
	}
	return configuration
}

// webhooksOf returns the entry for probes and those for guards, all by one path. Conditions are for guards only.
func webhooksOf(
	in Input, path, probeName string, guards []placed, conditions []admissionv1.MatchCondition, operations ...admissionv1.OperationType,
) []admissionv1.ValidatingWebhook {
	webhook := admissionv1.ValidatingWebhook{
		Name:                    probeEntry,
		Rules:                   probeWebhookRules(),
		NamespaceSelector:       inNamespaces([]string{in.Namespace}),
		MatchConditions:         probeConditions(probeName),
		ClientConfig:            in.Endpoint.clientConfig(path+in.MinVersion, in.Bundle),
		ObjectSelector:          &metav1.LabelSelector{},
		FailurePolicy:           ptr.To(admissionv1.Fail),
		MatchPolicy:             ptr.To(admissionv1.Equivalent),
		SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
		TimeoutSeconds:          ptr.To[int32](webhookTimeoutSeconds),
		AdmissionReviewVersions: []string{reviewVersion},
	}
	webhooks := []admissionv1.ValidatingWebhook{webhook}
	for _, e := range entriesOf(guards, in.Namespace) {
		webhook.Name = e.name + webhookDomain
		webhook.Rules = rulesOf(e.targets, e.scope, operations...)
		webhook.NamespaceSelector, webhook.MatchConditions = e.selector, conditions
		webhook.FailurePolicy = ptr.To(e.failurePolicy())
		webhooks = append(webhooks, webhook)
	}
	return webhooks
}

// placedFor returns the guards of /status, or all others.
func placedFor(guards []placed, status bool) []placed {
	return slices.DeleteFunc(slices.Clone(guards), func(g placed) bool { return (g.subresource == subresourceStatus) != status })
}

// probeWebhookRules match the creation of FencedLeases; the conditions leave all but one dry-run out.
func probeWebhookRules() []admissionv1.RuleWithOperations {
	own := target{GroupResource: v1alpha1.Resource.GroupResource()}
	return rulesOf([]target{own}, admissionv1.NamespacedScope, admissionv1.Create)
}

// probeConditions keep every object but the probe of this name away from the webhook.
func probeConditions(name string) []admissionv1.MatchCondition {
	return []admissionv1.MatchCondition{{Name: matchProbe, Expression: celIsProbe(name)}}
}

// systemConditions keep the deletes of system writers away from the webhook.
func systemConditions(users []string) []admissionv1.MatchCondition {
	if len(users) == 0 {
		return nil
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(users)))
	return []admissionv1.MatchCondition{{
		Name:       matchNotSystems,
		Expression: "!(request.operation == 'DELETE' && request.userInfo.username in " + celList(sorted) + ")",
	}}
}

// celIsProbe is true for the dry-run create of the object of this name, and never fails.
func celIsProbe(name string) string {
	return "has(request.dryRun) && request.dryRun && object != null && has(object.metadata.name) && object.metadata.name == " + celString(name)
}

// celString returns a CEL string literal.
func celString(text string) string {
	return "'" + strings.NewReplacer("\\", "\\\\", "'", "\\'", "\n", "\\n", "\r", "\\r").Replace(text) + "'"
}

// celList returns a CEL list of strings.
func celList(texts []string) string {
	literals := make([]string, len(texts))
	for i, text := range texts {
		literals[i] = celString(text)
	}
	return "[" + strings.Join(literals, ", ") + "]"
}
