// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applyv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=fencedlease-definitions;fencedlease-registration,verbs=get;create;patch;update

const (
	// DefinitionsName is the name of the policy, and of its binding, that refuses to delete the definitions of guarded kinds.
	DefinitionsName = "fencedlease-definitions"
	// RegistrationName is the name of the policy, and of its binding, that leaves the webhook configurations of the
	// registration to the manager.
	RegistrationName = "fencedlease-registration"

	// maxNamedLeases is how many leases a refusal names.
	maxNamedLeases = 3
)

// Protection is two policies, with their bindings, that keep the fence from being taken down by mistake. They are no part of
// it: writes are fenced without them, so that Ready does not wait for them and no probe asks for them.
//
// Neither can protect itself, as API servers evaluate no policy of the API for policies and bindings: deleting a binding is
// the way past them, and config/static-admission closes it for those who need that.
type Protection struct {
	Definitions         *admissionv1.ValidatingAdmissionPolicy
	DefinitionsBinding  *admissionv1.ValidatingAdmissionPolicyBinding
	Registration        *admissionv1.ValidatingAdmissionPolicy
	RegistrationBinding *admissionv1.ValidatingAdmissionPolicyBinding
}

// BuildProtection returns the protection for an input. The order of its leases and guards makes no difference.
func BuildProtection(in Input) Protection {
	return Protection{
		Definitions:         definitionsPolicy(in),
		DefinitionsBinding:  denyingBinding(in, DefinitionsName),
		Registration:        registrationPolicy(in),
		RegistrationBinding: denyingBinding(in, RegistrationName),
	}
}

// definitionsPolicy refuses the deletion of a definition while a lease that enforces guards its kind. API servers remove the
// objects of a definition that goes without any review, so that no webhook and no other policy could refuse it. A definition
// that is going already may be deleted again.
func definitionsPolicy(in Input) *admissionv1.ValidatingAdmissionPolicy {
	names := guardedDefinitions(in)
	texts := make([]string, 0, len(names))
	for _, name := range sortedKeys(names) {
		texts = append(texts, celString(name)+": "+celString(names[name]))
	}
	reason := "'" + v1alpha1.DeletionOverrideKey + "'"
	return &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: protectionMeta(in, DefinitionsName),
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy:    ptr.To(admissionv1.Fail),
			MatchConstraints: clusterConstraints(guardkind.CRDs.Group, []string{"customresourcedefinitions"}, admissionv1.Delete),
			MatchConditions: []admissionv1.MatchCondition{{
				Name:       "guarded",
				Expression: "oldObject.metadata.name in " + celList(sortedKeys(names)) + " && !has(oldObject.metadata.deletionTimestamp)",
			}},
			Variables: []admissionv1.Variable{{Name: "guards", Expression: "{" + strings.Join(texts, ", ") + "}"}},
			Validations: []admissionv1.Validation{{
				Expression: "has(oldObject.metadata.annotations) && " + reason + " in oldObject.metadata.annotations && " +
					"oldObject.metadata.annotations[" + reason + "].trim() != ''",
				Reason:  ptr.To(metav1.StatusReasonForbidden),
				Message: "FencedLeases guard objects of this definition, and deleting it would delete them without asking any fence: remove the guards first",
				MessageExpression: "'CustomResourceDefinition ' + oldObject.metadata.name + ' is guarded by ' + variables.guards[oldObject.metadata.name] + " +
					"': deleting it would delete all of its objects without asking any fence. First remove the guard or delete the FencedLease, and wait a moment " +
					"until the manager has seen it; or, if the cluster is being torn down or no manager runs, annotate the definition with " +
					v1alpha1.DeletionOverrideKey + "=<reason>'",
			}},
		},
	}
}

// guardedDefinitions returns the names of the definitions that leases guard which enforce, and for each a text that names
// the leases. One that is not installed yet is among them, so that it is protected from the beginning.
func guardedDefinitions(in Input) map[string]string {
	leases := map[string][]string{}
	for i := range in.Leases {
		lease := &in.Leases[i]
		for j := range lease.Spec.Guards {
			installable, _ := resolveGuard(in, lease, j)
			for _, g := range installable {
				if name := g.GroupResource.String(); !g.audit {
					leases[name] = append(leases[name], lease.Namespace+"/"+lease.Name)
				}
			}
		}
	}
	texts := make(map[string]string, len(leases))
	for name, all := range leases {
		slices.Sort(all)
		texts[name] = enumerate("FencedLease", slices.Compact(all))
	}
	return texts
}

// enumerate names a few of many things.
func enumerate(kind string, names []string) string {
	if len(names) == 1 {
		return kind + " " + names[0]
	}
	text := kind + "s " + strings.Join(names[:min(len(names), maxNamedLeases)], ", ")
	if more := len(names) - maxNamedLeases; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// registrationPolicy leaves what the webhook configurations of the registration ask for, and their lives, to the manager and
// to the garbage collector. Webhooks are not called for webhook configurations, policies are. Others may change labels and
// annotations, and write the object unchanged, as the storage version migrator does. Whoever may set owners could have the
// garbage collector delete it.
//
// The webhook configuration for FencedLeases themselves is left out: it is part of the manifests, so that whoever installs
// must be able to replace and to delete it, and there is no telling who that is.
func registrationPolicy(in Input) *admissionv1.ValidatingAdmissionPolicy {
	// Without a user of its own the manager could not be told from anybody else.
	others := "false"
	if in.Sealer != "" {
		others = "!(request.userInfo.username in " + celList(slices.Compact(slices.Sorted(slices.Values(append([]string{in.Sealer}, in.SystemWriters...))))) + ")"
	}
	const owners = "(has(%[1]s.metadata.ownerReferences) ? %[1]s.metadata.ownerReferences : [])"
	return &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: protectionMeta(in, RegistrationName),
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: clusterConstraints(admissionv1.GroupName,
				[]string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}, admissionv1.Delete, admissionv1.Update),
			MatchConditions: []admissionv1.MatchCondition{
				{Name: "registration", Expression: "oldObject.metadata.name == '" + GuardsName + "'"},
				{Name: "others", Expression: others},
			},
			Validations: []admissionv1.Validation{{
				// The API server itself counts the changes of webhooks in the generation, which no request can set.
				Expression: "request.operation == 'UPDATE' && object.metadata.generation == oldObject.metadata.generation && " +
					fmt.Sprintf(owners, "object") + " == " + fmt.Sprintf(owners, "oldObject"),
				Reason: ptr.To(metav1.StatusReasonForbidden),
				Message: GuardsName + " refuses the writes of former leaders, and only the manager of FencedLease may change or delete it: change FencedLeases " +
					"instead. To uninstall FencedLease, delete the CustomResourceDefinition " + CRDName + ". In an emergency stop the manager, which would put it " +
					"back, and delete the ValidatingAdmissionPolicyBinding " + RegistrationName + " first",
			}},
		},
	}
}

func denyingBinding(in Input, name string) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: protectionMeta(in, name),
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
}

func protectionMeta(in Input, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Labels: map[string]string{managedByLabel: managedBy},
		OwnerReferences: []metav1.OwnerReference{ownedBy(in.CRDUID)},
	}
}

// ownedBy is the reference to the definition of FencedLease, with which everything goes.
func ownedBy(uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: guardkind.CRDs.GroupVersion().String(), Kind: guardkind.CRDs.Kind, Name: CRDName, UID: uid}
}

// clusterConstraints match operations on cluster-scoped resources, in all versions.
func clusterConstraints(group string, resources []string, operations ...admissionv1.OperationType) *admissionv1.MatchResources {
	return &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{},
		ObjectSelector:    &metav1.LabelSelector{},
		MatchPolicy:       ptr.To(admissionv1.Equivalent),
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: operations,
			Rule: admissionv1.Rule{
				APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources, Scope: ptr.To(admissionv1.ClusterScope),
			},
		}}},
	}
}

// protectionObjects lists the protection's objects in the order in which they are applied.
func protectionObjects(p Protection) []wanted {
	var objects []wanted
	for _, policy := range []*admissionv1.ValidatingAdmissionPolicy{p.Registration, p.Definitions} {
		objects = append(objects, wanted{
			"ValidatingAdmissionPolicy", policy, &admissionv1.ValidatingAdmissionPolicy{},
			contentOf(func(o *admissionv1.ValidatingAdmissionPolicy) any { return o.Spec }), applyv1.ValidatingAdmissionPolicy(policy.Name),
		})
	}
	for _, binding := range []*admissionv1.ValidatingAdmissionPolicyBinding{p.RegistrationBinding, p.DefinitionsBinding} {
		objects = append(objects, wanted{
			"ValidatingAdmissionPolicyBinding", binding, &admissionv1.ValidatingAdmissionPolicyBinding{},
			contentOf(func(o *admissionv1.ValidatingAdmissionPolicyBinding) any { return o.Spec }), applyv1.ValidatingAdmissionPolicyBinding(binding.Name),
		})
	}
	return objects
}

// protect writes the objects of the protection that are different. What cannot be written is written in a later pass: the
// fence does not depend on it.
func (r *registrar) protect(ctx context.Context, in Input) error {
	for _, w := range protectionObjects(BuildProtection(in)) {
		written, err := applyWhenDifferent(ctx, r.client, r.live, w, "")
		if err != nil {
			return fmt.Errorf("protect the registration: %w", err)
		}
		if written != unchanged {
			r.opts.Metrics.applied(w.kind)
			ctrl.LoggerFrom(ctx).Info("Applied part of the protection", "kind", w.kind, "name", w.object.GetName())
		}
	}
	return nil
}
