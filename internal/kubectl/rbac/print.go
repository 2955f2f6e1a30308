// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"fmt"
	"io"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
)

const (
	kindRole               = "Role"
	kindRoleBinding        = "RoleBinding"
	kindClusterRole        = "ClusterRole"
	kindClusterRoleBinding = "ClusterRoleBinding"
)

// print writes the roles and their bindings as YAML.
func (w worker) print(out io.Writer) error {
	cli.Line(out, "# What service account %s/%s needs to lead by FencedLease %s/%s, with tokens carried by the %s.",
		w.namespace, w.serviceAccount, w.lease.Namespace, w.lease.Name, w.carrier)
	for _, kind := range w.missing() {
		cli.Line(out, "# %s is not installed: its subresources status and scale are taken to exist.", kind)
	}
	for _, d := range w.documents() {
		cli.Line(out, "---\n# %s", strings.TrimSpace(d.comment))
		role, binding := d.objects(rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: w.serviceAccount})
		for i, object := range []any{role, binding} {
			text, err := yaml.Marshal(object)
			if err != nil {
				return fmt.Errorf("encode roles: %w", err)
			}
			if i > 0 {
				cli.Line(out, "---")
			}
			if _, err := out.Write(text); err != nil {
				return fmt.Errorf("print: %w", err)
			}
		}
	}
	return nil
}

// objects returns the role and its binding.
func (d document) objects(subject rbacv1.Subject) (role, binding any) {
	meta := metav1.ObjectMeta{Namespace: d.namespace, Name: d.name}
	subjects := []rbacv1.Subject{subject}
	typeMeta := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	if d.namespace == "" {
		return &rbacv1.ClusterRole{TypeMeta: typeMeta(kindClusterRole), ObjectMeta: meta, Rules: d.rules},
			&rbacv1.ClusterRoleBinding{
				TypeMeta: typeMeta(kindClusterRoleBinding), ObjectMeta: meta, Subjects: subjects,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kindClusterRole, Name: d.name},
			}
	}
	return &rbacv1.Role{TypeMeta: typeMeta(kindRole), ObjectMeta: meta, Rules: d.rules},
		&rbacv1.RoleBinding{
			TypeMeta: typeMeta(kindRoleBinding), ObjectMeta: meta, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kindRole, Name: d.name},
		}
}
