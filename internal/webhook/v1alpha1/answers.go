// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
)

// questions are what must be known of the world to judge a write.
type questions struct {
	// wide are the indices of the guards that need the verb guard-cluster.
	wide []int
	// kinds are the guarded resources that must be classified.
	kinds []schema.GroupResource
	// others says that the leases of the same name in other namespaces matter.
	others bool
}

// answers are the world's side of a review.
type answers struct {
	// access is whether the requester has the verb guard-cluster; asked only if a guard needs it.
	access access
	// kinds classify the guarded resources.
	kinds map[schema.GroupResource]guardkind.Kind
	// others are the leases of the same name in other namespaces.
	others []api.FencedLease
}

// access is an authorizer's answer.
type access struct {
	allowed bool
	// reason is the authorizer's own explanation, if it gave one.
	reason string
}

// questionsOf returns what a write makes necessary to know. old is nil on create.
func questionsOf(old, lease *api.FencedLease) questions {
	var q questions
	q.wide = unapprovedGuards(old, lease)
	if guardsUnchanged(old, lease) {
		return q
	}
	q.kinds = guardedKinds(lease.Spec.Guards)
	q.others = len(lease.Spec.Guards) > 0
	return q
}

// guardsUnchanged reports whether an update leaves the guards as they are stored.
func guardsUnchanged(old, lease *api.FencedLease) bool {
	return old != nil && apiequality.Semantic.DeepEqual(old.Spec.Guards, lease.Spec.Guards)
}

// unapprovedGuards returns the indices of the guards beyond the lease's namespace that the stored lease does not have:
// whoever wrote those it has was asked for the permission then. A guard that goes away needs no permission, as the
// deletion of the lease needs none. A lease that leaves Audit begins to refuse writes, so all of its wide guards count as
// new.
func unapprovedGuards(old, lease *api.FencedLease) []int {
	var approved []api.Guard
	if old != nil && (old.Spec.Enforcement != api.EnforcementAudit || lease.Spec.Enforcement == api.EnforcementAudit) {
		approved = old.Spec.Guards
	}
	var indices []int
	for i, guard := range lease.Spec.Guards {
		if guard.NamespaceSelector == nil {
			continue
		}
		if !slices.ContainsFunc(approved, func(a api.Guard) bool { return apiequality.Semantic.DeepEqual(a, guard) }) {
			indices = append(indices, i)
		}
	}
	return indices
}

// guardedKinds returns the resources that guards name, each once and without subresources. Groups that are refused by
// their name alone are left out.
func guardedKinds(guards []api.Guard) []schema.GroupResource {
	var kinds []schema.GroupResource
	for _, guard := range guards {
		for _, group := range guard.APIGroups {
			if reason := unguardable(group); reason != "" {
				continue
			}
			for _, name := range resourceNames(guard) {
				kinds = append(kinds, schema.GroupResource{Group: group, Resource: name})
			}
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(kinds)
}

// ask answers the questions about a lease that a user writes.
func (v *validator) ask(ctx context.Context, q questions, lease *api.FencedLease, user authenticationv1.UserInfo) (answers, error) {
	var a answers
	if len(q.wide) > 0 {
		var err error
		if a.access, err = v.mayGuardCluster(ctx, lease, user); err != nil {
			return answers{}, err
		}
	}
	if len(q.kinds) > 0 {
		a.kinds = make(map[schema.GroupResource]guardkind.Kind, len(q.kinds))
	}
	for _, gr := range q.kinds {
		kind, err := v.Kinds.Classify(ctx, gr.Group, gr.Resource)
		if err != nil {
			return answers{}, fmt.Errorf("classify %s: %w", gr, err)
		}
		a.kinds[gr] = kind
	}
	if q.others {
		var err error
		if a.others, err = v.namesakes(ctx, lease); err != nil {
			return answers{}, err
		}
	}
	return a, nil
}

// mayGuardCluster asks the API server's authorizer, live, with everything that it knows of the user.
func (v *validator) mayGuardCluster(ctx context.Context, lease *api.FencedLease, user authenticationv1.UserInfo) (access, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	answer, err := v.Access.Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   user.Username,
			UID:    user.UID,
			Groups: user.Groups,
			Extra:  extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: lease.Namespace,
				Name:      lease.Name,
				Verb:      api.VerbGuardCluster,
				Group:     api.GroupName,
				Version:   api.SchemeGroupVersion.Version,
				Resource:  api.Resource.Resource,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return access{}, fmt.Errorf("create subjectaccessreview for the verb %s: %w", api.VerbGuardCluster, err)
	}
	reason := answer.Status.Reason
	if reason == "" {
		// An authorizer that failed has allowed nothing; what it says may help whoever reads the refusal.
		reason = answer.Status.EvaluationError
	}
	return access{allowed: answer.Status.Allowed && !answer.Status.Denied, reason: reason}, nil
}

// namesakes lists the leases of the same name in other namespaces.
//
// The list is a consistent read of the API server, so a lease whose creation was acknowledged before this write began is
// in it. Of two leases that are created at the same moment neither may see the other, with any read: admission does not
// lock. Nothing is admitted wrongly then. Every lease that guards an object must accept a write to it, both leases' marks
// are one annotation, and their terms are random, so a token of one is stale or forked for the other: writes to what both
// guard are refused until an operator, who reads both names in the refusal, renames or narrows one. The next change of
// either's guards is refused here as long as they overlap.
func (v *validator) namesakes(ctx context.Context, lease *api.FencedLease) ([]api.FencedLease, error) {
	var list api.FencedLeaseList
	if err := v.Leases.List(ctx, &list, client.MatchingFields{metav1.ObjectNameField: lease.Name}); err != nil {
		return nil, fmt.Errorf("list FencedLeases named %q: %w", lease.Name, err)
	}
	// A reader that ignores the selector must not make strangers overlap.
	return slices.DeleteFunc(list.Items, func(other api.FencedLease) bool {
		return other.Name != lease.Name || other.Namespace == lease.Namespace
	}), nil
}
