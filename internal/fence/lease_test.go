// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/pkg/token"
)

func TestLeaseOf(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{Namespace: "reports", Name: "report-writer"}
	for name, tc := range map[string]struct {
		lease *v1alpha1.FencedLease
		want  fence.Lease
		token token.Token
	}{
		"without a status nobody has held it": {
			&v1alpha1.FencedLease{ObjectMeta: meta},
			fence.Lease{Namespace: "reports", Name: "report-writer"}, token.Token{},
		},
		"held and enforced": {
			&v1alpha1.FencedLease{ObjectMeta: meta, Spec: v1alpha1.FencedLeaseSpec{Enforcement: v1alpha1.EnforcementEnforce},
				Status: v1alpha1.FencedLeaseStatus{Generation: ptr.To[int64](34), Term: ptr.To(termB), HolderIdentity: ptr.To("report-b")}},
			held(), token.Token{Generation: 34, Term: termB},
		},
		"released": {
			&v1alpha1.FencedLease{ObjectMeta: meta,
				Status: v1alpha1.FencedLeaseStatus{Generation: ptr.To[int64](34), Term: ptr.To(termB), HolderIdentity: ptr.To("")}},
			released(), token.Token{Generation: 34, Term: termB},
		},
		"with credentials": {
			&v1alpha1.FencedLease{ObjectMeta: meta,
				Status: v1alpha1.FencedLeaseStatus{Generation: ptr.To[int64](34), Term: ptr.To(termB), HolderIdentity: ptr.To("report-b"),
					Credentials: []v1alpha1.Credential{{ID: credentialOfA, Term: termA}, {ID: credentialOfB, Term: termB}}}},
			listing(held()), token.Token{Generation: 34, Term: termB},
		},
		"in Audit": {
			&v1alpha1.FencedLease{ObjectMeta: meta, Spec: v1alpha1.FencedLeaseSpec{Enforcement: v1alpha1.EnforcementAudit},
				Status: v1alpha1.FencedLeaseStatus{Generation: ptr.To[int64](34), Term: ptr.To(termB), HolderIdentity: ptr.To("report-b")}},
			inAudit(), token.Token{Generation: 34, Term: termB},
		},
		"an unknown enforcement is enforced": {
			&v1alpha1.FencedLease{ObjectMeta: meta, Spec: v1alpha1.FencedLeaseSpec{Enforcement: "audit"}},
			fence.Lease{Namespace: "reports", Name: "report-writer"}, token.Token{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := fence.LeaseOf(tc.lease)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("lease (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.token, got.Token()); diff != "" {
				t.Errorf("token (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff("reports/report-writer", got.String()); diff != "" {
				t.Errorf("name (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMustPresent(t *testing.T) {
	t.Parallel()
	guard := func(subjects ...v1alpha1.Subject) v1alpha1.Guard { return v1alpha1.Guard{Subjects: subjects} }
	account := func(namespace, name string) v1alpha1.Subject {
		return v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Namespace: namespace, Name: name}
	}
	user := v1alpha1.Subject{Kind: v1alpha1.SubjectUser, Name: "jane"}
	group := v1alpha1.Subject{Kind: v1alpha1.SubjectGroup, Name: "writers"}
	for name, tc := range map[string]struct {
		guards []v1alpha1.Guard
		writer fence.Writer
		want   bool
	}{
		"no guard matches the object":                        {nil, fence.Writer{Username: "jane"}, false},
		"a guard without subjects asks everybody":            {[]v1alpha1.Guard{guard()}, fence.Writer{Username: "jane"}, true},
		"a guard without subjects asks who has no name":      {[]v1alpha1.Guard{guard()}, fence.Writer{}, true},
		"a guard asks its user":                              {[]v1alpha1.Guard{guard(user)}, fence.Writer{Username: "jane"}, true},
		"a guard asks no other user":                         {[]v1alpha1.Guard{guard(user)}, fence.Writer{Username: "joe"}, false},
		"a user's name is no prefix":                         {[]v1alpha1.Guard{guard(user)}, fence.Writer{Username: "jane2"}, false},
		"a user is not a group of the same name":             {[]v1alpha1.Guard{guard(user)}, fence.Writer{Username: "joe", Groups: []string{"jane"}}, false},
		"a guard asks a member of its group":                 {[]v1alpha1.Guard{guard(group)}, fence.Writer{Username: "joe", Groups: []string{"a", "writers"}}, true},
		"a guard asks no member of other groups":             {[]v1alpha1.Guard{guard(group)}, fence.Writer{Username: "writers", Groups: []string{"a"}}, false},
		"an account is of the lease's namespace by default":  {[]v1alpha1.Guard{guard(account("", "w"))}, fence.Writer{Username: "system:serviceaccount:reports:w"}, true},
		"an account of another namespace is not the default": {[]v1alpha1.Guard{guard(account("", "w"))}, fence.Writer{Username: "system:serviceaccount:other:w"}, false},
		"an account is of the namespace that is named":       {[]v1alpha1.Guard{guard(account("other", "w"))}, fence.Writer{Username: "system:serviceaccount:other:w"}, true},
		"an account is not the user of its bare name":        {[]v1alpha1.Guard{guard(account("", "w"))}, fence.Writer{Username: "w"}, false},
		"one of several subjects is enough":                  {[]v1alpha1.Guard{guard(user, account("", "w"), group)}, fence.Writer{Username: "x", Groups: []string{"writers"}}, true},
		"one of several guards is enough":                    {[]v1alpha1.Guard{guard(user), guard(group)}, fence.Writer{Username: "x", Groups: []string{"writers"}}, true},
		"a guard for everybody outdoes one for some":         {[]v1alpha1.Guard{guard(user), guard()}, fence.Writer{Username: "joe"}, true},
		"a kind that is not understood asks everybody":       {[]v1alpha1.Guard{guard(v1alpha1.Subject{Kind: "Robot", Name: "r2"})}, fence.Writer{Username: "joe"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := fence.MustPresent(tc.guards, "reports", tc.writer); got != tc.want {
				t.Errorf("must present %v, want %v", got, tc.want)
			}
		})
	}
}
