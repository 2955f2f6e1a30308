// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/hack/demo/protocol"
	"github.com/fencedlease/fencedlease/test/env"
)

const (
	plainNamespace  = "reports-plain"
	fencedNamespace = "reports"

	// leaseName is the name of the Lease and of the FencedLease.
	leaseName = "report-writer"

	workerA = "worker-a"
	workerB = "worker-b"

	// daily is the report that both workers write, weekly one that B does not touch.
	daily  = "daily"
	weekly = "weekly"

	firstValue = "nothing yet"
)

// guardedKinds lets the manager read the kind that is guarded, as a cluster's owner does.
func guardedKinds() client.Object {
	return &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{
			Name: "fencedlease-guarded-reports", Labels: map[string]string{"rbac.fencedlease.io/aggregate-to-guarded-kinds": "true"},
		},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{env.GuardedGroup}, Resources: []string{"reports", "reports/scale"}, Verbs: []string{"get", "list"},
		}},
	}
}

// stage creates what a story needs: a namespace, two reports, and the least rights that its workers can do with.
func (c *cluster) stage(ctx context.Context, namespace, election string) error {
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{env.GuardedGroup}, Resources: []string{"reports"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
	if election == protocol.ElectionFenced {
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases"}, Verbs: []string{"get"}},
			rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"fencedleases/status"}, Verbs: []string{"patch"}},
		)
	} else {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"},
		})
	}
	subject := func(name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "worker"}
	return c.create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&rbacv1.Role{ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects:   []rbacv1.Subject{subject(workerA), subject(workerB)},
		},
		env.NewReport(namespace, daily, firstValue),
		env.NewReport(namespace, weekly, firstValue),
	)
}

// fencedLease guards the reports of its namespace, with their status and scale.
func fencedLease() *v1alpha1.FencedLease {
	return &v1alpha1.FencedLease{
		ObjectMeta: metav1.ObjectMeta{Namespace: fencedNamespace, Name: leaseName},
		Spec: v1alpha1.FencedLeaseSpec{
			LeaseDurationSeconds: int32(leaseDuration.Seconds()),
			Guards:               []v1alpha1.Guard{{APIGroups: []string{env.GuardedGroup}, Resources: []string{"reports/*"}}},
		},
	}
}

func (c *cluster) create(ctx context.Context, objects ...client.Object) error {
	for _, object := range objects {
		if err := c.client.Create(ctx, object); err != nil {
			return fmt.Errorf("create %T %s: %w", object, client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

// stored is what a report holds, read from the API server.
type stored struct {
	value, mark string
}

func (c *cluster) report(ctx context.Context, namespace, name string) (stored, error) {
	report := &unstructured.Unstructured{}
	report.SetGroupVersionKind(env.ReportKind(env.ReportVersion))
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, report); err != nil {
		return stored{}, fmt.Errorf("read report %s/%s: %w", namespace, name, err)
	}
	value, _, err := unstructured.NestedString(report.Object, "spec", "value")
	if err != nil {
		return stored{}, fmt.Errorf("read report %s/%s: %w", namespace, name, err)
	}
	return stored{value: value, mark: report.GetAnnotations()[v1alpha1.TokenKey(leaseName)]}, nil
}

// differsError says where a story went otherwise than it should.
type differsError struct{ what string }

func (e *differsError) Error() string { return e.what }

// expect returns an error if something is not as the story says.
func expect[T comparable](what string, want, got T) error {
	if want != got {
		return &differsError{fmt.Sprintf("%s: expected %v, found %v", what, want, got)}
	}
	return nil
}

func expectPrefix(what, want, got string) error {
	if !strings.HasPrefix(got, want) {
		return &differsError{fmt.Sprintf("%s: expected %q at its beginning, found %q", what, want, got)}
	}
	return nil
}
