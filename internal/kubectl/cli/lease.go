// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// pageSize is how many objects one request lists.
const pageSize = 500

// GetLease reads a FencedLease from the API server.
func GetLease(ctx context.Context, c client.Client, key types.NamespacedName) (*v1alpha1.FencedLease, error) {
	lease := &v1alpha1.FencedLease{}
	if err := c.Get(ctx, key, lease); err != nil {
		return nil, NextStep(fmt.Errorf("get FencedLease %s: %w", key, err), key.Namespace)
	}
	lease.SetGroupVersionKind(v1alpha1.Kind)
	return lease, nil
}

// ListLeases reads the FencedLeases of a namespace, or of all if it is empty, from the API server.
func ListLeases(ctx context.Context, c client.Client, namespace string, options ...client.ListOption) (*v1alpha1.FencedLeaseList, error) {
	all := &v1alpha1.FencedLeaseList{}
	all.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("FencedLeaseList"))
	options = append(options, client.InNamespace(namespace), client.Limit(pageSize))
	next := ""
	for {
		page := &v1alpha1.FencedLeaseList{}
		if err := c.List(ctx, page, append(slices.Clone(options), client.Continue(next))...); err != nil {
			return nil, NextStep(fmt.Errorf("list FencedLeases%s: %w", in(namespace), err), namespace)
		}
		all.Items = append(all.Items, page.Items...)
		all.ResourceVersion = page.ResourceVersion
		if next = page.Continue; next == "" {
			break
		}
	}
	for i := range all.Items {
		all.Items[i].SetGroupVersionKind(v1alpha1.Kind)
	}
	return all, nil
}

func in(namespace string) string {
	if namespace == "" {
		return " of all namespaces"
	}
	return " in namespace " + namespace
}

// NextStep adds to an answer of the API server about FencedLeases what to do about it.
func NextStep(err error, namespace string) error {
	switch {
	case err == nil:
		return nil
	case NotInstalled(err):
		return fmt.Errorf("%w: FencedLease is not installed on this cluster: install it with kubectl apply --server-side -f install.yaml, or choose another cluster with --context", err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: see which there are with: kubectl fencedlease get%s", err, scope(namespace))
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: ask for a role on fencedleases; `kubectl fencedlease rbac` prints the one that a worker needs", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: log in again, or choose another user with --user or --context", err)
	default:
		return err
	}
}

// NotInstalled reports whether an answer says that the API server does not know FencedLeases.
func NotInstalled(err error) bool {
	if meta.IsNoMatchError(err) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	details := status.Status().Details
	return details != nil && slices.ContainsFunc(details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeUnexpectedServerResponse
	})
}

func scope(namespace string) string {
	if namespace == "" {
		return " -A"
	}
	return " -n " + namespace
}

// None stands for what is absent.
const None = "<none>"

// Holder returns who holds a lease, or None.
func Holder(lease *v1alpha1.FencedLease) string {
	return OrNone(ptr.Deref(lease.Status.HolderIdentity, ""))
}

// OrNone returns the text, or None if it is empty.
func OrNone(text string) string {
	if text == "" {
		return None
	}
	return text
}

// Age says how long ago a time was, by this machine's clock.
func Age(now time.Time, then *metav1.MicroTime) string {
	if then == nil || then.IsZero() {
		return None
	}
	return duration.HumanDuration(max(now.Sub(then.Time), 0))
}

// ConditionStatus returns the status of a condition, or Unknown if it is not set.
func ConditionStatus(lease *v1alpha1.FencedLease, conditionType string) string {
	if c := meta.FindStatusCondition(lease.Status.Conditions, conditionType); c != nil {
		return string(c.Status)
	}
	return string(metav1.ConditionUnknown)
}

// State tells who holds a lease, in one clause.
func State(lease *v1alpha1.FencedLease, now time.Time) string {
	status := &lease.Status
	generation := ptr.Deref(status.Generation, 0)
	switch {
	case status.GenerationFloor == nil:
		return "the controller has not set status.generationFloor yet, so nobody can acquire the lease"
	case generation == 0:
		return "nobody has held the lease yet"
	case ptr.Deref(status.HolderIdentity, "") == "":
		return fmt.Sprintf("generation %d was released and nobody holds the lease", generation)
	default:
		return fmt.Sprintf("%q holds generation %d, token %s, renewed %s ago (lease duration %ds)",
			*status.HolderIdentity, generation, ptr.Deref(status.Token, ""), Age(now, status.RenewTime), lease.Spec.LeaseDurationSeconds)
	}
}

// GuardedResources names what a guard protects: reports.example.com/*.
func GuardedResources(g v1alpha1.Guard) []string {
	var names []string
	for _, group := range g.APIGroups {
		for _, resource := range g.Resources {
			name, subresource, has := strings.Cut(resource, "/")
			name += "." + group
			if has {
				name += "/" + subresource
			}
			names = append(names, name)
		}
	}
	return names
}
