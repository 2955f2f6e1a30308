// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// Origin says where a lease was read.
type Origin int

const (
	// Cached is a lease of any age. It can make a verdict stricter, never looser.
	Cached Origin = iota
	// Linearizable is a lease read from the store by a read that began after the request arrived.
	Linearizable
)

// Lease is what the decision needs to know of a FencedLease.
type Lease struct {
	// Namespace and Name identify the lease.
	Namespace, Name string
	// Gone says that a linearizable read did not find the lease, or that it no longer guards the object.
	Gone bool
	// Audit says that the lease refuses nothing.
	Audit bool
	// Generation, Term and Holder are the possession; Generation is 0 if the lease was never held.
	Generation int64
	Term       string
	Holder     string
	// Credentials are the credentials that were recorded for this term and for earlier ones, each id once.
	Credentials []v1alpha1.Credential
}

// LeaseOf takes from a FencedLease what the decision needs. The credentials are shared with it.
func LeaseOf(lease *v1alpha1.FencedLease) Lease {
	return Lease{
		Namespace:   lease.Namespace,
		Name:        lease.Name,
		Audit:       lease.Spec.Enforcement == v1alpha1.EnforcementAudit,
		Generation:  ptr.Deref(lease.Status.Generation, 0),
		Term:        ptr.Deref(lease.Status.Term, ""),
		Holder:      ptr.Deref(lease.Status.HolderIdentity, ""),
		Credentials: lease.Status.Credentials,
	}
}

// String returns namespace/name.
func (l Lease) String() string { return l.Namespace + "/" + l.Name }

// Token returns the token of the lease's current or last possession, or the zero token if it was never held.
func (l Lease) Token() token.Token {
	if l.Generation == 0 {
		return token.Token{}
	}
	return token.Token{Generation: l.Generation, Term: l.Term}
}

// View is a lease together with where it was read and whom it asks for a token.
type View struct {
	Lease Lease
	// Origin is where Lease was read.
	Origin Origin
	// MustPresent says that the writer is one of those whose writes must present a token. See MustPresent.
	MustPresent bool
}

// MustPresent reports whether one of the guards that match an object asks the writer for a token: it names no subjects,
// or one of its subjects is the writer. namespace is the lease's own.
func MustPresent(guards []v1alpha1.Guard, namespace string, writer Writer) bool {
	for i := range guards {
		if len(guards[i].Subjects) == 0 {
			return true
		}
		for _, s := range guards[i].Subjects {
			if isSubject(s, namespace, writer) {
				return true
			}
		}
	}
	return false
}

func isSubject(s v1alpha1.Subject, namespace string, writer Writer) bool {
	switch s.Kind {
	case v1alpha1.SubjectUser:
		return s.Name == writer.Username
	case v1alpha1.SubjectGroup:
		for _, g := range writer.Groups {
			if g == s.Name {
				return true
			}
		}
		return false
	case v1alpha1.SubjectServiceAccount:
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		return writer.Username == "system:serviceaccount:"+namespace+":"+s.Name
	default:
		// The schema allows no other kind. A kind that is not understood must not open the fence.
		return true
	}
}
