// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// sealed reports whether the write may pass by a cached lease of any age.
//
// The lease shows a term that hands over by Seal, so that the next one, whatever its own strategy, begins with a seal: it
// is not Ready before the mark of every object that the guard covers has been moved to its generation. The commit is
// conditioned on the state in which the mark is still that of the token's term. So either the seal has not come to this
// object, and no newer holder has begun to write; or it comes first, the commit fails, and the write is judged anew by a
// mark that its token is below. How old the lease is does not matter, nor whether the holder has released it since.
//
// Each condition keeps something out for which that does not hold:
//   - Audit: marks are not protected, so they prove nothing.
//   - Handover: the term after a lazy one may begin without a seal.
//   - Holder and SealedGeneration: a term that is known to have ended, or that may not write yet.
//   - Operation: a create has no old object, and deletes are rare; a scale's objects show no marks of their own.
//   - final deletes: the delete that follows is not conditioned on the mark.
//   - SealCovers: a seal moves the mark of every object of the resource, and nothing else can.
//   - the terms of mark and token: another history may have handed out the same number.
//   - the credential and the stamp: what a read would refuse is not let past without one.
func (d *decision) sealed() bool {
	lease, w := d.view.Lease, d.write
	return d.view.SealCovers && !lease.Gone && !lease.Audit &&
		lease.Handover == v1alpha1.HandoverSeal && lease.Holder != "" && lease.SealedGeneration == lease.Generation &&
		w.Operation == Update && w.Subresource != SubresourceScale && !w.finalDelete() &&
		!d.applied() && isOf(d.mark, lease) && isOf(d.presented, lease) && d.credentialAgrees() && d.stamped()
}

// isOf reports whether a token is certainly of the lease's current or last term. A token without a term is of none.
func isOf(t token.Token, lease Lease) bool {
	return !t.IsZero() && t.Possession() == lease.Token() && t.Term != ""
}

// credentialAgrees reports whether the request's credential, if the lease lists it, is of the term that the write presents.
func (d *decision) credentialAgrees() bool {
	state, term := CredentialOf(d.write.Writer, d.view.Lease)
	return state == CredentialUnlisted || d.agreesWith(state, term)
}
