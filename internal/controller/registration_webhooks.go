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
	// stampEntry begins the names of the entries by which writes are marked for their credential.
	stampEntry      = "stamp-"
	matchCredential = "to-be-marked-for-its-credential"
)

// guardsConfiguration calls the webhook for guarded writes other than those to /status.
func guardsConfiguration(in Input, resolved resolution, meta metav1.ObjectMeta, hash string) *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: meta,
		Webhooks: webhooksOf(in, fencing.PathGuarded, probe.Name(probe.Guards, hash), placedFor(resolved.placed, false),
			slices.Concat(systemConditions(in.SystemWriters), stampExempt(in.Sealer)), admissionv1.Create, admissionv1.Update, admissionv1.Delete),
	}
}

// statusConfiguration calls the webhook for guarded updates of /status. It is a mutating one because the validating phase
// sees the old metadata there; the webhook patches nothing. It also calls the webhook for creates and updates of guarded
// objects that have to be marked for the credential that they are made with, and for no others: this is a second hop.
// Should another webhook put an object under a guard afterwards, they are called for again.
func statusConfiguration(in Input, resolved resolution, meta metav1.ObjectMeta, hash string) *admissionv1.MutatingWebhookConfiguration {
	configuration := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: meta}
	webhooks := webhooksOf(in, fencing.PathStatus, probe.Name(probe.Status, hash), placedFor(resolved.placed, true), nil, admissionv1.Update)
	judging := len(webhooks)
	conditions := stampConditions(in.SystemWriters, in.Sealer)
	for _, w := range entryWebhooks(in, fencing.PathStamp, placedMain(resolved.placed), conditions, admissionv1.Create, admissionv1.Update) {
		w.Name = stampEntry + w.Name
		webhooks = append(webhooks, w)
	}
	for i := range webhooks {
		w := &webhooks[i]
		reinvocation := admissionv1.NeverReinvocationPolicy
		if i >= judging {
			reinvocation = admissionv1.IfNeededReinvocationPolicy
		}
		configuration.Webhooks = append(configuration.Webhooks, admissionv1.MutatingWebhook{
			Name: w.Name, Rules: w.Rules, NamespaceSelector: w.NamespaceSelector, MatchConditions: w.MatchConditions,
			ClientConfig:            w.ClientConfig,
			ObjectSelector:          w.ObjectSelector,
			FailurePolicy:           w.FailurePolicy,
			MatchPolicy:             w.MatchPolicy,
			SideEffects:             w.SideEffects,
			TimeoutSeconds:          w.TimeoutSeconds,
			AdmissionReviewVersions: w.AdmissionReviewVersions,
			ReinvocationPolicy:      ptr.To(reinvocation),
		})
	}
	return configuration
}

// webhooksOf returns the entry for probes and those for guards, all by one path. Conditions are for guards only.
func webhooksOf(
	in Input, path, probeName string, guards []placed, conditions []admissionv1.MatchCondition, operations ...admissionv1.OperationType,
) []admissionv1.ValidatingWebhook {
	webhook := baseWebhook(in, path, false)
	webhook.Name, webhook.Rules = probeEntry, probeWebhookRules()
	webhook.NamespaceSelector, webhook.MatchConditions = inNamespaces([]string{in.Namespace}), probeConditions(probeName)
	webhook.FailurePolicy = ptr.To(admissionv1.Fail)
	return append([]admissionv1.ValidatingWebhook{webhook}, entryWebhooks(in, path, guards, conditions, operations...)...)
}

// baseWebhook is what all entries of one path have in common, but for those of leases in Audit.
func baseWebhook(in Input, path string, audit bool) admissionv1.ValidatingWebhook {
	return admissionv1.ValidatingWebhook{
		ClientConfig:            in.Endpoint.clientConfig(fencing.Path(path, in.MinVersion, audit), in.Bundle),
		ObjectSelector:          &metav1.LabelSelector{},
		MatchPolicy:             ptr.To(admissionv1.Equivalent),
		SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
		TimeoutSeconds:          ptr.To[int32](webhookTimeoutSeconds),
		AdmissionReviewVersions: []string{reviewVersion},
	}
}

// entryWebhooks returns the entries for guards.
func entryWebhooks(
	in Input, path string, guards []placed, conditions []admissionv1.MatchCondition, operations ...admissionv1.OperationType,
) []admissionv1.ValidatingWebhook {
	var webhooks []admissionv1.ValidatingWebhook
	for _, e := range entriesOf(guards, in.Namespace) {
		webhook := baseWebhook(in, path, e.audit)
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

// placedMain returns the guards of objects themselves.
func placedMain(guards []placed) []placed {
	return slices.DeleteFunc(slices.Clone(guards), func(g placed) bool { return g.subresource != "" })
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

// stampConditions keep away every write that cannot have to be marked for its credential: one that is not made with a
// bearer token, such as those of users with certificates, one whose request carries a fencing token, one that sets one
// itself, and those of system writers and of the manager, which are no leaders. It is one condition, as the API server evaluates
// each of several in any case.
func stampConditions(systemWriters []string, manager string) []admissionv1.MatchCondition {
	credential := "'" + v1alpha1.CredentialKey + "'"
	var conditions []string
	users := slices.Clone(systemWriters)
	if manager != "" {
		users = append(users, manager)
	}
	if len(users) > 0 {
		conditions = append(conditions, "!(request.userInfo.username in "+celList(slices.Compact(slices.Sorted(slices.Values(users))))+")")
	}
	conditions = append(conditions,
		"has(request.userInfo.extra) && "+credential+" in request.userInfo.extra",
		"request.userInfo.extra["+credential+"].size() == 1",
		"request.userInfo.extra["+credential+"][0].startsWith('"+v1alpha1.CredentialPrefix+"')",
		"!"+celHasExtra,
		"!("+celAnnotations+".exists(k, "+celIsMark+" && !(k in "+celStored+" && "+celStored+"[k] == "+celAnnotations+"[k])))",
	)
	return []admissionv1.MatchCondition{{Name: matchCredential, Expression: strings.Join(conditions, " && ")}}
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
