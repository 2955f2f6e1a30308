// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"fmt"
	"unicode/utf8"
)

// maxQuoted bounds what a message repeats of a client's text.
const maxQuoted = 64

func quote(text string) string {
	if len(text) > maxQuoted {
		cut := maxQuoted
		for cut > maxQuoted-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
			cut--
		}
		return fmt.Sprintf("%q…", text[:cut])
	}
	return fmt.Sprintf("%q", text)
}

// state tells who holds the lease and what a writer would have to present.
func (d *decision) state() string {
	l := d.view.Lease
	switch {
	case d.view.Origin == Cached && d.mark.Generation > l.Generation:
		// The cache is behind or the lease went back: its holder is not the one to name.
		return fmt.Sprintf("a token of generation %d or above is needed, its holder is not known to this replica yet", d.mark.Generation)
	case l.Generation == 0:
		return "nobody has held the lease yet"
	case l.Holder == "":
		return fmt.Sprintf("generation %d was released and nobody holds the lease", l.Generation)
	default:
		return fmt.Sprintf("%s holds generation %d, token needed %s", quote(l.Holder), l.Generation, l.Token())
	}
}

func (d *decision) say(format string, args ...any) string {
	return fmt.Sprintf("FencedLease %s: ", d.view.Lease) + fmt.Sprintf(format, args...)
}

func (d *decision) sayTampered() string {
	return d.say("the write removes the mark %s (annotation %s), which nobody may do; %s. "+
		"Keep the annotation: send the object as read, or use patch or apply, which leave it in place", d.mark, d.key, d.state())
}

func (d *decision) sayMalformed(problem string) string {
	return d.say("the write does not present one well-formed token: %s; %s. "+
		"Present <generation>.<term>, with /<operation> to tell writes apart, in one place", problem, d.state())
}

func (d *decision) sayMissing() string {
	inherited := ""
	if !d.mark.IsZero() {
		inherited = fmt.Sprintf(" (the annotation %s is as stored, so it presents nothing)", d.mark)
	}
	// Every token of a service account has an id: it is worth a word only where terms have credentials.
	if id := d.write.Writer.credential(); id != "" && len(d.view.Lease.Credentials) > 0 {
		inherited += fmt.Sprintf(" and its credential %s is not in status.credentials", quote(id))
	}
	return d.say("the write presents no token%s; %s. %s", inherited, d.state(), d.present())
}

func (d *decision) sayEnded() string {
	return d.say("the request's credential is stale: it is of term %s; %s. "+
		"That term has ended: drop the result, acquire the lease again and compute anew, with the credential of the new term",
		quote(d.credentialTerm), d.state())
}

// sayDisagree is the problem of a write whose text is not of the term of its credential.
func (d *decision) sayDisagree(state CredentialState, term string) string {
	of := "term " + quote(term) + ", which has ended"
	if state == CredentialCurrent {
		of = d.view.Lease.Token().String()
	}
	return fmt.Sprintf("the write presents %s, the request's credential is of %s", d.presented, of)
}

// token names the token that is presented.
func (d *decision) token() string {
	if d.carrier == CarrierCredential {
		return d.presented.String() + " (by credential)"
	}
	return d.presented.String()
}

func (d *decision) sayFinalDelete() string {
	return d.say("the write presents no token and leaves an object that is being deleted without a finalizer, so that it "+
		"would be gone with no further check; %s. %s", d.state(), d.present())
}

// present is the next step of a writer without a token.
func (d *decision) present() string {
	step := "Present the token of the held term: "
	if d.view.Lease.Holder == "" {
		step = "Acquire the lease and present its token: "
	}
	request := "as user extra " + d.key + " of the request"
	switch {
	case d.write.Operation == Delete:
		return step + request + ", or first write the annotation " + d.key + " with the operation /delete"
	case d.write.Subresource == SubresourceScale:
		return step + request
	case d.write.Operation == Create:
		return step + "as the annotation " + d.key + ", or " + request
	default:
		return step + "as a new value of the annotation " + d.key + " with another /<operation>, or " + request
	}
}

const acquireAnew = "The term of this token has ended: drop the result, acquire the lease again and compute anew"

func (d *decision) sayBelowMark() string {
	next := acquireAnew
	switch lease := d.view.Lease; {
	case !d.mark.Plausible():
		next = "No history reaches that generation, the mark is forged or corrupted: " +
			"delete the object with the token of the held term and create it anew"
	case d.mark.Generation > lease.Generation && d.presented.Generation == lease.Generation:
		next = "The lease was restored to an older state or the object comes from elsewhere: " +
			"acquire the lease again, the next generation starts above what was seen"
	}
	return d.say("token presented %s is stale: the object was last written under %s; %s. %s", d.token(), d.mark, d.state(), next)
}

func (d *decision) sayStale() string {
	return d.say("token presented %s is stale; %s. %s", d.presented, d.state(), acquireAnew)
}

func (d *decision) sayFuture() string {
	next := "The lease or its cluster was restored to an older state: " +
		"acquire the lease again, the next generation starts above what was seen"
	if !d.presented.Plausible() {
		next = "No history reaches that generation, the token is forged or corrupted: " +
			"acquire the lease and present the token of that term"
	}
	return d.say("token presented %s is above the lease's generation %d; %s. %s",
		d.presented, d.view.Lease.Generation, d.state(), next)
}

func (d *decision) sayForked() string {
	return d.say("token presented %s has the lease's generation but another term; %s. "+
		"It stems from a history that a restore has undone: acquire the lease again and compute anew", d.presented, d.state())
}

func (d *decision) sayReleased() string {
	return d.say("token presented %s is of a term that was released; %s. "+
		"Acquire the lease again before writing", d.token(), d.state())
}

func (d *decision) sayApplied() string {
	at := ""
	if clock := d.recorded.Clock(); clock != "" {
		at = " at " + clock
	}
	return d.say("operation %s was applied under generation %d%s, so this write is not applied; %s. "+
		"Take it for done and read the object; a write that is to be applied needs an operation of its own",
		quote(d.recorded.Operation), d.recorded.Generation, at, d.state())
}

func (d *decision) sayNotStamped() string {
	if d.carrier == CarrierCredential {
		return d.say("the request's credential is of %s, but the annotation %s was not set to it: the credential was recorded while the "+
			"write was on its way, the write sets the token of another lease itself, or the webhook fencedlease-guards does not stamp. "+
			"Try again; if it stays so, look at the lease's condition Ready", d.presented, d.key)
	}
	return d.say("the request carries token %s, but it was not copied into the annotation %s: "+
		"the policy fencedlease-stamps is not in force on this API server. Try again; if it stays so, look at the lease's condition Ready",
		d.presented, d.key)
}

func (d *decision) saySealPending() string {
	lease := d.view.Lease
	return d.say("the term %s must be sealed before its first write, and guarded objects are still being stamped: sealedGeneration is %d; %s. "+
		"Wait until status.sealedGeneration is %d and try again; if it stays so, look at the lease's condition Sealed",
		lease.Token(), lease.SealedGeneration, d.state(), lease.Generation)
}

func (d *decision) sayUnsupported(problem string) string {
	return d.say("cannot judge %s. The registration of the webhook does not ask for it: look at what changed it", problem)
}
