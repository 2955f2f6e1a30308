// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// entry is one entry of a webhook configuration: targets that are guarded in the same places.
type entry struct {
	// name tells entries apart: own-<hash> or wide-<hash>, after audit- for leases in Audit.
	name string
	// audit says that the entry is for leases in Audit.
	audit   bool
	targets []target
	// scope is that of the rules: a guard without a namespaceSelector never reaches cluster-scoped objects.
	scope    admissionv1.ScopeType
	selector *metav1.LabelSelector
}

// failurePolicy is Ignore where only leases in Audit guard: they refuse nothing, also while every manager is down.
func (e entry) failurePolicy() admissionv1.FailurePolicyType {
	if e.audit {
		return admissionv1.Ignore
	}
	return admissionv1.Fail
}

// entriesOf returns the entries for guards that enforce, and apart from them those for guards in Audit. A write that both
// guard is called for twice.
func entriesOf(guards []placed, managerNamespace string) []entry {
	inAudit := func(g placed) bool { return g.audit }
	enforcing := groupedEntries(slices.DeleteFunc(slices.Clone(guards), inAudit), managerNamespace)
	auditing := groupedEntries(slices.DeleteFunc(slices.Clone(guards), func(g placed) bool { return !inAudit(g) }), managerNamespace)
	for i := range auditing {
		auditing[i].name, auditing[i].audit = "audit-"+auditing[i].name, true
	}
	return append(auditing, enforcing...)
}

// groupedEntries groups guards into as few entries as possible, in a fixed order. Every target that is guarded in a place is in
// an entry for this place; a write is called for twice only where the selectors of two wide guards overlap.
func groupedEntries(guards []placed, managerNamespace string) []entry {
	everywhere := map[target]bool{}
	for _, g := range guards {
		everywhere[g.target] = everywhere[g.target] || isEverything(g.selector)
	}
	own := map[target]map[string]bool{}
	wide := map[string]map[target]bool{}
	selectors := map[string]*metav1.LabelSelector{}
	for _, g := range guards {
		switch {
		case everywhere[g.target] && !isEverything(g.selector):
			// The webhook finds all guards of an object by itself: one call is enough.
		case g.selector == nil:
			if own[g.target] == nil {
				own[g.target] = map[string]bool{}
			}
			own[g.target][g.namespace] = true
		default:
			key := selectorKey(g.selector)
			if wide[key] == nil {
				wide[key] = map[target]bool{}
			}
			wide[key][g.target], selectors[key] = true, g.selector
		}
	}
	entries := ownEntries(own)
	for _, key := range slices.Sorted(maps.Keys(wide)) {
		entries = append(entries, entry{
			name: "wide-" + shortHash(key)[:8], targets: sortedTargets(wide[key]), scope: admissionv1.AllScopes,
			selector: withoutNamespaces(selectors[key], protectedNamespaces(managerNamespace)),
		})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return entries
}

// ownEntries groups targets that are guarded in the same list of namespaces.
func ownEntries(own map[target]map[string]bool) []entry {
	byNamespaces := map[string]map[target]bool{}
	namespaces := map[string][]string{}
	for t, names := range own {
		sorted := slices.Sorted(maps.Keys(names))
		key := strings.Join(sorted, ",")
		if byNamespaces[key] == nil {
			byNamespaces[key] = map[target]bool{}
		}
		byNamespaces[key][t], namespaces[key] = true, sorted
	}
	var entries []entry
	for key, targets := range byNamespaces {
		sorted := sortedTargets(targets)
		var text strings.Builder
		for _, t := range sorted {
			text.WriteString(t.Group + "/" + t.rule() + "\n")
		}
		entries = append(entries, entry{
			// Named by what is guarded, so that a namespace more or less changes no name.
			name: "own-" + shortHash(text.String())[:8], targets: sorted, scope: admissionv1.NamespacedScope,
			selector: inNamespaces(namespaces[key]),
		})
	}
	return entries
}

// isEverything reports whether a wide guard selects every namespace.
func isEverything(selector *metav1.LabelSelector) bool {
	return selector != nil && len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0
}

// selectorKey returns a text that is equal for equal selectors in canonical form.
func selectorKey(selector *metav1.LabelSelector) string {
	// Maps are written in the order of their keys, and a selector cannot fail to be written.
	text, err := json.Marshal(selector)
	if err != nil {
		return selector.String()
	}
	return string(text)
}

func sortedTargets(targets map[target]bool) []target {
	return slices.SortedFunc(maps.Keys(targets), target.compare)
}

func inNamespaces(names []string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: names},
	}}
}

// withoutNamespaces narrows a selector.
func withoutNamespaces(selector *metav1.LabelSelector, names []string) *metav1.LabelSelector {
	narrowed := selector.DeepCopy()
	narrowed.MatchExpressions = append(narrowed.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: names,
	})
	return narrowed
}

// rulesOf names targets explicitly, one rule for each group. All versions are named: a write by a version that a rule
// leaves out must not pass.
func rulesOf(targets []target, scope admissionv1.ScopeType, operations ...admissionv1.OperationType) []admissionv1.RuleWithOperations {
	var rules []admissionv1.RuleWithOperations
	for _, t := range targets {
		if n := len(rules); n > 0 && rules[n-1].APIGroups[0] == t.Group {
			rules[n-1].Resources = append(rules[n-1].Resources, t.rule())
			continue
		}
		rules = append(rules, admissionv1.RuleWithOperations{
			Operations: operations,
			Rule: admissionv1.Rule{
				APIGroups: []string{t.Group}, APIVersions: []string{"*"}, Resources: []string{t.rule()}, Scope: ptr.To(scope),
			},
		})
	}
	return rules
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
