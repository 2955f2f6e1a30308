// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"fmt"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/operation"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// Decide judges one write by one lease. The order is that of the contract: system writers, tampering with the mark,
// malformed tokens, missing tokens, the mark, the lease.
func Decide(w Write, v View) Verdict {
	d := decision{write: w, view: v, key: v1alpha1.TokenKey(v.Lease.Name)}
	verdict := d.decide()
	verdict.Lease = v.Lease
	verdict.Presented = d.presented
	if verdict.Reason == MissingToken || verdict.Reason == AlreadyApplied {
		verdict.Recorded = d.recorded
	}
	verdict.Carrier = d.carrier
	verdict.Ahead = d.ahead()
	if verdict.Outcome == Deny && v.Lease.Audit {
		// A refusal of a lease in Audit is an admission, and a cached lease alone never admits.
		if v.Origin == Cached {
			return Verdict{Outcome: NeedsRead, Reason: NotFresh, Lease: v.Lease, Presented: d.presented, Carrier: d.carrier}
		}
		verdict.Audited = true
	}
	return verdict
}

// decision is one call of Decide.
type decision struct {
	write Write
	view  View
	key   string

	mark      token.Token // the stored mark, zero if there is none or it is not a token
	presented token.Token
	carrier   Carrier
	// recorded is the record of the operation that is presented, or of that of an inherited mark; zero if there is none.
	recorded operation.Record
	// ended says that what is presented is a credential of a term that has ended.
	ended bool
	// credentialTerm is the term of the credential that presents the token.
	credentialTerm string
}

func (d *decision) decide() Verdict {
	w := d.write
	if problem := checkShape(w); problem != "" {
		return Verdict{Outcome: Unavailable, Reason: UnsupportedOperation, Message: d.sayUnsupported(problem)}
	}
	if w.System.harmless(w, d.key) {
		return Verdict{Outcome: Allow, Reason: SystemWriter}
	}
	if v := d.view; v.Origin == Linearizable && v.Lease.Gone {
		// Deleting a lease, or taking an object out of its guards, ends the protection.
		return Verdict{Outcome: Allow, Reason: NotGuarded}
	}
	d.readMark()
	if d.markRemoved() {
		return d.deny(MarkTampered, d.sayTampered())
	}
	if problem := d.readToken(); problem != "" {
		return d.deny(MalformedToken, d.sayMalformed(problem))
	}
	if problem := d.readCredential(); problem != "" {
		return d.deny(MalformedToken, d.sayMalformed(problem))
	}
	d.readRecord()
	switch {
	case d.carrier == CarrierNone:
		return d.withoutToken()
	case d.ended:
		return d.deny(StaleToken, d.sayEnded())
	default:
		return d.withToken()
	}
}

// checkShape reports what keeps a write from being judged at all. The registration asks for nothing else, so such a
// write shows a mistake in it, and the fence stays shut.
func checkShape(w Write) (problem string) {
	switch w.Subresource {
	case SubresourceMain, SubresourceStatus, SubresourceScale:
	default:
		return "subresource " + quote(w.Subresource)
	}
	switch {
	case w.Operation == Create && w.Subresource == SubresourceMain && w.Old == nil && w.New != nil:
	case w.Operation == Update && w.Old != nil && w.New != nil:
	case w.Operation == Delete && w.Subresource == SubresourceMain && w.Old != nil && w.New == nil:
	default:
		return "operation " + quote(string(w.Operation)) + " with this set of objects"
	}
	return ""
}

// readMark reads the stored mark. A value that is not a token is no mark: nobody can have been admitted with it.
func (d *decision) readMark() {
	if d.write.Old == nil {
		return
	}
	if mark, err := token.Parse(d.write.Old.Annotations[d.key]); err == nil {
		d.mark = mark
	}
}

// readRecord looks the operation up in the stored object. The API server conditions the commit on that state, so that of two
// writes with one operation the second always sees the record of the first. A write that inherits the mark presents
// nothing; it may be the repetition of the write that set it, or one that knows nothing of that.
func (d *decision) readRecord() {
	if d.write.Old == nil {
		return
	}
	t := d.presented
	if d.carrier == CarrierNone && d.write.New != nil && d.write.Subresource != SubresourceScale && d.write.New.Annotations[d.key] == d.write.Old.Annotations[d.key] {
		t = d.mark
	}
	if t.Business() {
		d.recorded, _ = operation.Find(d.write.Old.Annotations[v1alpha1.OperationsKey(d.view.Lease.Name)], t.Operation)
	}
}

func (d *decision) applied() bool { return d.carrier != CarrierNone && d.recorded.Operation != "" }

// markRemoved reports whether the write drops the mark. A status write cannot: the API server keeps the stored
// annotations. A scale write cannot either.
func (d *decision) markRemoved() bool {
	if d.mark.IsZero() || d.write.New == nil || d.write.Subresource != SubresourceMain {
		return false
	}
	_, there := d.write.New.Annotations[d.key]
	return !there
}

// readToken finds the token that the write presents: one value carried by the request, or a changed annotation. An
// annotation that is as stored was inherited and presents nothing.
func (d *decision) readToken() (problem string) {
	values := d.write.Writer.Extra[d.key]
	if len(values) > 1 {
		return fmt.Sprintf("the request carries %d values", len(values))
	}
	text, changed := changedAnnotation(d.write, d.key)
	carrier := CarrierAnnotation
	switch {
	case len(values) == 1 && changed && text != values[0]:
		return "the annotation is " + quote(text) + ", the request carries " + quote(values[0])
	case len(values) == 1:
		text, carrier = values[0], CarrierRequest
	case !changed:
		return ""
	}
	presented, err := token.Parse(text)
	if err != nil {
		return err.Error()
	}
	d.presented, d.carrier = presented, carrier
	return ""
}

func (d *decision) withoutToken() Verdict {
	w := d.write
	if d.view.Origin == Cached {
		// Guards, subjects and the delete intent are judged by the spec and the generation that are in force now.
		return Verdict{Outcome: NeedsRead, Reason: NotFresh}
	}
	switch {
	case d.deleteIntended():
		// Also before the term's seal, in which only the seal itself writes this mark, into late creates.
		return Verdict{Outcome: Allow, Reason: DeleteIntent}
	case w.Override.Reason != "" && w.Override.Permitted:
		return Verdict{Outcome: Allow, Reason: Overridden}
	case w.finalDelete():
		return d.deny(FinalDelete, d.sayFinalDelete())
	case d.view.MustPresent:
		return d.deny(MissingToken, d.sayMissing())
	default:
		return Verdict{Outcome: Allow, Reason: NotSubject}
	}
}

// deleteIntended reports whether the stored mark was written, under the term that holds the lease now, to ask for the
// object's deletion.
func (d *decision) deleteIntended() bool {
	lease := d.view.Lease
	return d.write.Operation == Delete && d.mark.Operation == token.OperationDelete &&
		d.mark.Generation == lease.Generation && termsAgree(d.mark, lease) && lease.Holder != ""
}

func (d *decision) withToken() Verdict {
	lease, presented := d.view.Lease, d.presented
	if token.Compare(presented, d.mark) < 0 && !d.markMayBeDeleted() {
		return d.deny(StaleToken, d.sayBelowMark())
	}
	if presented.Generation < lease.Generation {
		// Generations never fall, so that a cached lease proves it as well as any newer one.
		return d.deny(StaleToken, d.sayStale())
	}
	if d.view.Origin == Cached {
		if d.sealed() {
			return Verdict{Outcome: Allow, Reason: SealedTerm}
		}
		return Verdict{Outcome: NeedsRead, Reason: NotFresh}
	}
	switch {
	case presented.Generation > lease.Generation:
		return d.deny(FutureToken, d.sayFuture())
	case !termsAgree(presented, lease):
		return d.deny(ForkedTerm, d.sayForked())
	case lease.Holder == "":
		return d.deny(Released, d.sayReleased())
	case d.applied():
		return d.deny(AlreadyApplied, d.sayApplied())
	case !lease.Audit && !d.stamped():
		return Verdict{Outcome: Unavailable, Reason: NotStamped, Message: d.sayNotStamped()}
	case lease.sealPending():
		// A write of this term could be followed by one of an ended term, which a replica that is behind admits by the mark. A
		// status write moves no mark to keep that out.
		return Verdict{Outcome: Unavailable, Reason: SealPending, Message: d.saySealPending()}
	default:
		return Verdict{Outcome: Allow, Reason: CurrentToken}
	}
}

// markMayBeDeleted reports whether the write deletes an object whose mark no real history can have produced: the only
// way out for such an object is to delete it and create it anew.
func (d *decision) markMayBeDeleted() bool {
	return d.write.Operation == Delete && !d.mark.Plausible()
}

// termsAgree reports whether a token can be of the lease's current term. A token without a term agrees with every one.
func termsAgree(t token.Token, lease Lease) bool { return t.Term == "" || t.Term == lease.Term }

// stamped reports whether the accepted write moves the mark to the token it presents, where it can: a token carried by
// the request, or by its credential, must have been copied into the annotation in the same request.
func (d *decision) stamped() bool {
	if d.write.Subresource != SubresourceMain || d.write.New == nil {
		return true
	}
	return d.write.New.Annotations[d.key] == d.presented.String()
}

// ahead returns the highest generation above the lease's that a token or a stored mark shows, or 0. Implausible ones
// are included: who uses it decides what they mean.
func (d *decision) ahead() int64 {
	highest := max(d.presented.Generation, d.mark.Generation)
	if highest > d.view.Lease.Generation {
		return highest
	}
	return 0
}

func (d *decision) deny(reason Reason, message string) Verdict {
	return Verdict{Outcome: Deny, Reason: reason, Message: message}
}
