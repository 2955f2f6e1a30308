// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
	"github.com/fencedlease/fencedlease/internal/probe"
)

// celToken is the text form of a token, as package token reads it. Other values are no marks.
const celToken = "^[1-9][0-9]{0,17}([.][a-z0-9]{8})?(/[-_.:A-Za-z0-9]{1,128})?$"

// The expressions that both policies are made of. None can fail on an absent field.
var (
	celIsMark      = "k.startsWith('" + v1alpha1.TokenPrefix + "')"
	celLease       = fmt.Sprintf("k.substring(%d)", len(v1alpha1.TokenPrefix))
	celOwnGroup    = "request.resource.group == '" + v1alpha1.GroupName + "'"
	celIsToken     = "v.matches('" + celToken + "')"
	celAnnotations = "(object != null && has(object.metadata.annotations) ? object.metadata.annotations : {})"
	celStored      = "(oldObject != null && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {})"
	celHasExtra    = "(has(request.userInfo.extra) && request.userInfo.extra.exists(k, " + celIsMark + "))"
	celHasStored   = celHasAnnotation("oldObject", celIsMark)
	celDigits      = "%s.split('/')[0].split('.')[0]"
	celGeneration  = "int(" + celDigits + ")"
	celShort       = "(%[1]s.size() > 160 ? %[1]s.substring(0, 160) + '...' : %[1]s)"
)

// marksPolicy refuses writes by which a mark falls, vanishes or becomes something else, also of cluster administrators,
// and tokens of which one request carries several. It uses no parameters, so a restarting API server has nothing to wait
// for but the policy itself. Garbage that was stored before is no mark. Leases in Audit are left out by their name and
// the place that they guard.
func marksPolicy(in Input, resolved resolution, meta metav1.ObjectMeta, hash string) *admissionv1.ValidatingAdmissionPolicy {
	enforced := slices.DeleteFunc(slices.Clone(resolved.placed), func(g placed) bool { return g.audit })
	isProbe := celOwnGroup + " && " + celIsProbe(probe.Name(probe.Policies, hash))
	audited := "!(" + celLease + " in variables.audited)"
	return &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy:    ptr.To(admissionv1.Fail),
			MatchConstraints: policyConstraints(in, enforced, "", subresourceStatus),
			MatchConditions: []admissionv1.MatchCondition{{
				Name:       "marked-or-carrying",
				Expression: celMatch(in, isProbe, "("+celHasStored+" || "+celHasExtra+" || "+celHasAnnotation("object", celIsRecords)+" || "+celHasAnnotation("oldObject", celIsRecords)+")"),
			}},
			Variables: append(celAudited(resolved.placed), []admissionv1.Variable{
				{Name: "marks", Expression: celStored + ".transformMap(k, v, " + celIsMark + " && " + celIsToken + " && " + audited + ", v)"},
				{Name: "now", Expression: celAnnotations},
				{Name: "stored", Expression: celStored},
				{Name: "forged", Expression: celForged("variables.audited")},
				{Name: "lost", Expression: "variables.marks.transformList(k, v, !(k in variables.now) || !variables.now[k].matches('" + celToken + "') || " +
					fmt.Sprintf(celGeneration, "variables.now[k]") + " < " + fmt.Sprintf(celGeneration, "v") + ", k)"},
				{Name: "several", Expression: "has(request.userInfo.extra) ? request.userInfo.extra.transformList(k, v, " + celIsMark + " && v.size() != 1 && " + audited + ", k) : []"},
			}...),
			Validations: []admissionv1.Validation{
				{
					Expression: "!(" + isProbe + ")",
					Reason:     ptr.To(metav1.StatusReasonForbidden),
					Message:    probe.Refusal(hash),
					MessageExpression: "'" + probe.Refusal(hash) + "' + ('" + probe.StampAnnotation + "' in variables.now ? '; ' + variables.now['" +
						probe.StampAnnotation + "'] : '')",
				},
				{
					Expression: "variables.lost.size() == 0",
					Reason:     ptr.To(metav1.StatusReasonForbidden),
					Message:    "a mark (annotation " + v1alpha1.TokenPrefix + "<lease>) must not fall or vanish: read the object again and keep it",
					MessageExpression: "'the mark ' + variables.lost[0] + ' must not fall or vanish: the object carries ' + variables.marks[variables.lost[0]] + " +
						"(variables.lost[0] in variables.now ? ', the write sets ' + " + fmt.Sprintf(celShort, "variables.now[variables.lost[0]]") + " : ', the write removes it') + " +
						"': a later write than the one this is based on, or a newer holder of the FencedLease, has set it. " +
						"Read the object again and keep the annotation as it is, or as the holder write with the current token'",
				},
				{
					Expression: "variables.forged.size() == 0",
					Reason:     ptr.To(metav1.StatusReasonForbidden),
					Message:    "the record of operations (annotation " + v1alpha1.OperationsPrefix + "<lease>) must stay as it is stored: read the object again and keep it",
					MessageExpression: "'the record of operations ' + variables.forged[0] + ' must stay as it is stored: ' + " +
						"(oldObject == null ? 'a new object has none. Leave the annotation out' : " +
						"(variables.forged[0] in variables.now ? 'only a write that presents an operation of its own adds one to it' : 'the write removes it') + " +
						"'. Read the object again and keep the annotation as it is')",
				},
				{
					Expression: "variables.several.size() == 0",
					Reason:     ptr.To(metav1.StatusReasonForbidden),
					Message:    "a request must carry one token for each FencedLease",
					MessageExpression: "'the request carries ' + string(request.userInfo.extra[variables.several[0]].size()) + ' values of ' + variables.several[0] + " +
						"': send one token for each FencedLease'",
				},
			},
		},
	}
}

// stampsPolicy copies a token carried by the request into the annotation, so that the mark moves in the same commit, and
// records the business operation that the token names. Records that a write leaves out it puts back. It leaves alone what the webhook must refuse: several tokens, text
// that is no token, and a token other than the one that the writer has put into the annotation itself. A stamp of a seal
// carries its token in the name of its field manager.
func stampsPolicy(in Input, resolved resolution, meta metav1.ObjectMeta, hash string) *admissionv1.MutatingAdmissionPolicy {
	isProbe := celOwnGroup + " && " + celIsProbe(probe.Name(probe.Policies, hash))
	limits := celLimits(resolved.placed)
	stamp := celIsMark + " && v.size() == 1 && v[0].matches('" + celToken + "') && " +
		"(!(k in variables.now) || variables.now[k] == v[0] || (k in variables.stored && variables.now[k] == variables.stored[k]))"
	return &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: meta,
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      ptr.To(admissionv1.Fail),
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			MatchConstraints:   policyConstraints(in, resolved.placed, ""),
			MatchConditions: []admissionv1.MatchCondition{{
				Name:       "carrying-or-recorded",
				Expression: celMatch(in, isProbe, "("+strings.Join([]string{celHasExtra, celPresentsBusiness(), celTakesRecords(), "(" + celStamp(in.Sealer) + ")"}, " || ")+")"),
			}},
			Variables: append(celVariables("limits", limits), []admissionv1.Variable{
				{Name: "now", Expression: celAnnotations},
				{Name: "stored", Expression: celStored},
				{Name: "carried", Expression: "has(request.userInfo.extra) ? request.userInfo.extra.transformMap(k, v, " + stamp + ", v[0]) : {}"},
				{Name: "written", Expression: "variables.now.transformMap(k, v, " + celIsMark + " && " + celIsToken + " && !(k in variables.stored && variables.stored[k] == v) && " +
					"!(has(request.userInfo.extra) && k in request.userInfo.extra), v)"},
				{Name: "here", Expression: celHere},
				{Name: "anywhere", Expression: celAnywhere},
				{Name: "clock", Expression: celClock},
				{Name: "moved", Expression: celMoved},
				{Name: "stamp", Expression: "(" + celStamp(in.Sealer) + ") ? " + celFieldManager + ".split('" + seal.Separator + "') : []"},
			}...),
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: strings.Join([]string{
					"(has(object.metadata.annotations) ? [] : [JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}])",
					"(" + isProbe + " ? [" + celAddAnnotation("'"+probe.StampAnnotation+"'", "'"+probe.Stamped(hash)+"'") + "] : [])",
					"variables.carried.transformList(k, v, " + celAddAnnotation("k", "v") + ")",
					celKept(),
					celRecorded(celLimit(len(limits))),
					celStamped(),
				}, " + ")},
			}},
		},
	}
}

func marksBinding(meta metav1.ObjectMeta) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: MarksName, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
}

func stampsBinding(meta metav1.ObjectMeta) *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: StampsName},
	}
}

// policyConstraints match creates and updates of the given subresources of all guarded resources, and of probes. A policy
// has one namespaceSelector for all rules: the guarded namespaces if they are known by name, else all but kube-system.
func policyConstraints(in Input, guards []placed, subresources ...string) *admissionv1.MatchResources {
	own, wide := map[target]bool{}, map[target]bool{}
	namespaces := map[string]bool{in.Namespace: true}
	for _, g := range guards {
		for _, subresource := range subresources {
			t := target{g.GroupResource, subresource}
			if g.selector != nil {
				wide[t] = true
			} else {
				own[t], namespaces[g.namespace] = true, true
			}
		}
	}
	for t := range wide {
		delete(own, t)
	}
	selector := withoutNamespaces(&metav1.LabelSelector{}, []string{metav1.NamespaceSystem})
	if len(wide) == 0 {
		selector = inNamespaces(sortedKeys(namespaces))
	}
	rules := slices.Concat(
		probeWebhookRules(),
		rulesOf(sortedTargets(own), admissionv1.NamespacedScope, admissionv1.Create, admissionv1.Update),
		rulesOf(sortedTargets(wide), admissionv1.AllScopes, admissionv1.Create, admissionv1.Update),
	)
	named := make([]admissionv1.NamedRuleWithOperations, len(rules))
	for i := range rules {
		named[i].RuleWithOperations = rules[i]
	}
	return &admissionv1.MatchResources{
		NamespaceSelector: selector,
		ObjectSelector:    &metav1.LabelSelector{},
		ResourceRules:     named,
		MatchPolicy:       ptr.To(admissionv1.Equivalent),
	}
}

// celMatch is true for the probe, and for guarded writes outside of protected namespaces for which condition holds.
func celMatch(in Input, isProbe, condition string) string {
	return "(" + isProbe + ") || (!(" + celOwnGroup + ") && !(has(request.namespace) && request.namespace in " +
		celList(protectedNamespaces(in.Namespace)) + ") && " + condition + ")"
}

// celHasAnnotation is true if an object has an annotation whose key k satisfies a condition. It cannot fail.
func celHasAnnotation(object, condition string) string {
	return "(" + object + " != null && has(" + object + ".metadata.annotations) && " + object + ".metadata.annotations.exists(k, " + condition + "))"
}

func celAddAnnotation(key, value string) string {
	return "JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey(" + key + "), value: " + value + "}"
}

// celSelects is true where a wide guard reaches: cluster-scoped objects, and namespaces whose labels match.
func celSelects(selector *metav1.LabelSelector) string {
	conditions := []string{}
	labels := "namespaceObject.metadata.labels"
	has := func(key string) string { return "(has(" + labels + ") && " + celString(key) + " in " + labels + ")" }
	for _, key := range sortedKeys(selector.MatchLabels) {
		conditions = append(conditions, "("+has(key)+" && "+labels+"["+celString(key)+"] == "+celString(selector.MatchLabels[key])+")")
	}
	for _, e := range selector.MatchExpressions {
		in := labels + "[" + celString(e.Key) + "] in " + celList(e.Values)
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			conditions = append(conditions, "("+has(e.Key)+" && "+in+")")
		case metav1.LabelSelectorOpNotIn:
			conditions = append(conditions, "!("+has(e.Key)+" && "+in+")")
		case metav1.LabelSelectorOpExists:
			conditions = append(conditions, has(e.Key))
		case metav1.LabelSelectorOpDoesNotExist:
			conditions = append(conditions, "!"+has(e.Key))
		}
	}
	if len(conditions) == 0 {
		return "true"
	}
	return "(namespaceObject == null || (" + strings.Join(conditions, " && ") + "))"
}
