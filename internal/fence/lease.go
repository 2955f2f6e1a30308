// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// Origin says where a lease was read.
type Origin int

const (
	// Cached is a lease of any age. It can make a verdict stricter, and looser only together with the mark of a sealed term:
	// see SealCovers.
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
	// Handover is the strategy of this term. The one after a term that hands over by Seal begins with a seal.
	Handover v1alpha1.Handover
	// Seal says whether this term must be sealed before its first write.
	Seal v1alpha1.Seal
	// SealedGeneration is the last generation that every guarded object was stamped with.
	SealedGeneration int64
	// Credentials are the credentials that were recorded for this term and for earlier ones, each id once.
	Credentials []v1alpha1.Credential
}

// LeaseOf takes from a FencedLease what the decision needs. The credentials are shared with it.
func LeaseOf(lease *v1alpha1.FencedLease) Lease {
	return Lease{
		Namespace:        lease.Namespace,
		Name:             lease.Name,
		Audit:            lease.Spec.Enforcement == v1alpha1.EnforcementAudit,
		Generation:       ptr.Deref(lease.Status.Generation, 0),
		Term:             ptr.Deref(lease.Status.Term, ""),
		Holder:           ptr.Deref(lease.Status.HolderIdentity, ""),
		Handover:         lease.Status.Handover,
		Seal:             lease.Status.Seal,
		SealedGeneration: ptr.Deref(lease.Status.SealedGeneration, 0),
		Credentials:      lease.Status.Credentials,
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

// sealPending reports whether the term may not write yet, as guarded objects are still to be stamped with its generation. A
// lease in Audit holds nobody up.
func (l Lease) sealPending() bool {
	return !l.Audit && l.Seal == v1alpha1.SealRequired && l.SealedGeneration != l.Generation
}

// View is a lease together with where it was read and whom it asks for a token.
type View struct {
	Lease Lease
	// Origin is where Lease was read.
	Origin Origin
	// MustPresent says that the writer is one of those whose writes must present a token. See MustPresent.
	MustPresent bool
	// SealCovers says that a seal moves the mark of every object that the write could be to. See SealCovers.
	SealCovers bool
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

// SealCovers reports whether one of a lease's guards makes a seal move the mark of every object of a resource in the
// lease's namespace, and names what is written: the main resource or the given subresource of it. Such a guard has no
// selector, so that no object is left out for its labels, now or at the time of the seal; and it names the main resource,
// so that nothing but a write that the guard judges can touch the mark. Its subjects do not matter: others pass without a
// token, and never move a mark.
func SealCovers(guards []v1alpha1.Guard, resource schema.GroupResource, subresource string) bool {
	return slices.ContainsFunc(guards, func(g v1alpha1.Guard) bool {
		return g.NamespaceSelector == nil && selectsAll(g.ObjectSelector) &&
			g.Names(resource, SubresourceMain) && g.Names(resource, subresource)
	})
}

func selectsAll(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
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
