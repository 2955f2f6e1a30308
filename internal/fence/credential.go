// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"strings"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// CredentialState is what the credential of a request is by a lease.
type CredentialState int

const (
	// CredentialUnlisted is a credential that the lease does not list, or none: it presents nothing.
	CredentialUnlisted CredentialState = iota
	// CredentialCurrent is a credential of the lease's current or last term: it presents the token of that term.
	CredentialCurrent
	// CredentialEnded is a credential of a term before that one. A credential is added for the term of its time only, so
	// that a lease of any age proves that the term has ended; the lease does not tell under which generation it was.
	CredentialEnded
)

// CredentialOf returns what the credential of a writer's request is by a lease, and its term. It is judged by its id
// alone, never by its expiry or revocation: a revoked one works on for a while.
func CredentialOf(writer Writer, lease Lease) (state CredentialState, term string) {
	id := writer.credential()
	for _, c := range lease.Credentials {
		switch {
		case id == "" || c.ID != id:
		case c.Term == lease.Term && lease.Generation > 0:
			return CredentialCurrent, c.Term
		default:
			return CredentialEnded, c.Term
		}
	}
	return CredentialUnlisted, ""
}

// HasCredential reports whether authentication told with which token a request was made. A lease may list it.
func HasCredential(writer Writer) bool { return writer.credential() != "" }

// credential returns the id of the token that a request was made with. It is empty where it was made with something else,
// and where authentication told several: only an impersonation can, and none of them is then the request's own.
func (w Writer) credential() string {
	if ids := w.Extra[v1alpha1.CredentialKey]; len(ids) == 1 && strings.HasPrefix(ids[0], v1alpha1.CredentialPrefix) {
		return ids[0]
	}
	return ""
}

// readCredential adds the token of the request's credential to what readToken has found. A text that the write presents
// besides must be of the same possession, and is then the one that counts, as it may carry an operation.
func (d *decision) readCredential() (problem string) {
	state, term := CredentialOf(d.write.Writer, d.view.Lease)
	switch {
	case state == CredentialUnlisted:
	case d.carrier == CarrierNone:
		d.carrier, d.ended = CarrierCredential, state == CredentialEnded
		d.credentialTerm = term
		if !d.ended {
			d.presented = d.view.Lease.Token()
		}
	case d.view.Origin == Cached:
		// A text that the cached lease proves stale is stale whatever the credential says. For the rest, the lease may
		// not list the credential any more, and then it says nothing.
	case !d.agreesWith(state, term):
		problem = d.sayDisagree(state, term)
		d.presented, d.carrier = token.Token{}, CarrierNone
		return problem
	case d.carrier == CarrierAnnotation && d.presented == d.view.Lease.Token():
		// This is what the mutating phase writes for the credential.
		d.carrier = CarrierCredential
	}
	return ""
}

// agreesWith reports whether the text that the write presents can be of the credential's term. That of an ended term was
// below the lease's generation.
func (d *decision) agreesWith(state CredentialState, term string) bool {
	if d.presented.Term != "" && d.presented.Term != term {
		return false
	}
	if state == CredentialCurrent {
		return d.presented.Generation == d.view.Lease.Generation
	}
	return d.presented.Generation < d.view.Lease.Generation
}

// StampFor returns the mark that a write without a token of its own must leave because its credential is of the lease's
// current term, and whether there is one to be set. It decides nothing: a write that gets no stamp is judged like any
// other, and one that gets a stamp as well. A mark above the credential's generation is left to be refused.
func StampFor(w Write, lease Lease) (stamp token.Token, needed bool) {
	if w.New == nil || w.Subresource != SubresourceMain {
		return token.Token{}, false
	}
	d := decision{write: w, view: View{Lease: lease}, key: v1alpha1.TokenKey(lease.Name)}
	d.readMark()
	if problem := d.readToken(); problem != "" || d.carrier != CarrierNone {
		return token.Token{}, false
	}
	if state, _ := CredentialOf(w.Writer, lease); state != CredentialCurrent {
		return token.Token{}, false
	}
	stamp = lease.Token()
	if token.Compare(stamp, d.mark) < 0 || w.New.Annotations[d.key] == stamp.String() {
		return token.Token{}, false
	}
	return stamp, true
}
