// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package guarded

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
)

// Guarding are the leases that guard an object.
type Guarding struct {
	Found []Guard
	// Incomplete says that only the leases of the object's namespace could be read: a lease of another namespace may guard
	// the object as well.
	Incomplete bool
}

// Guard is a lease that guards an object.
type Guard struct {
	Lease *v1alpha1.FencedLease
	// Guards are the indexes of the guards that the object is under.
	Guards []int
}

// Leases reads the FencedLeases from the API server and returns those that guard an object.
func Leases(ctx context.Context, c client.Client, o Object) (Guarding, error) {
	var guarding Guarding
	list, err := cli.ListLeases(ctx, c, metav1.NamespaceAll)
	if apierrors.IsForbidden(err) && o.Namespace != "" {
		guarding.Incomplete = true
		list, err = cli.ListLeases(ctx, c, o.Namespace)
	}
	if err != nil {
		return guarding, err
	}
	for i := range list.Items {
		lease := &list.Items[i]
		indexes, err := By(ctx, lease, o)
		if err != nil {
			return guarding, err
		}
		if len(indexes) > 0 {
			guarding.Found = append(guarding.Found, Guard{Lease: lease, Guards: indexes})
		}
	}
	return guarding, nil
}

// NamespaceLabels returns a function that reads the labels of a namespace from the API server.
func NamespaceLabels(c client.Client, name string) func(context.Context) (labels.Set, error) {
	return func(ctx context.Context) (labels.Set, error) {
		namespace := &corev1.Namespace{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
			return nil, fmt.Errorf("get namespace %s: %w", name, err)
		}
		return namespace.Labels, nil
	}
}
