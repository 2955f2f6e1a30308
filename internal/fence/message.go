// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"fmt"
)

// maxQuoted bounds what a message repeats of a client's text.
const maxQuoted = 64

func quote(text string) string {
	if len(text) > maxQuoted {
		return fmt.Sprintf("%q…", text[:maxQuoted])
	}
	return fmt.Sprintf("%q", text)
}

// state tells who holds the lease and what a writer would have to present.
func (d *decision) state() string {
	l := d.view.Lease
	switch {
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
	return d.say("the write presents no token%s; %s. Present the token of the held term: %s",
		inherited, d.state(), d.howToPresent())
}

func (d *decision) howToPresent() string {
	request := fmt.Sprintf("as user extra %s of the request", d.key)
	annotation := fmt.Sprintf("as a new value of the annotation %s with another /<operation>", d.key)
	switch {
	case d.write.Operation == Delete:
		return request + ", or first write the annotation " + d.key + " with the operation /delete"
	case d.write.Subresource == SubresourceScale:
		return request
	default:
		return annotation + ", or " + request
	}
}

func (d *decision) sayFinalDelete() string {
	return d.say("the write removes the last finalizer of an object that is being deleted and presents no token; %s. "+
		"The object would be gone with no further check: present the token of the held term: %s", d.state(), d.howToPresent())
}

func (d *decision) sayBelowMark() string {
	return d.say("token presented %s is stale: the object was last written under %s; %s. "+
		"The term of this token has ended: drop the result, acquire the lease again and compute anew", d.presented, d.mark, d.state())
}

func (d *decision) sayStale() string {
	return d.say("token presented %s is stale; %s. "+
		"The term of this token has ended: drop the result, acquire the lease again and compute anew", d.presented, d.state())
}

func (d *decision) sayFuture() string {
	return d.say("token presented %s is above the lease's generation %d; %s. "+
		"The lease or its cluster was restored to an older state: acquire the lease again, the next generation starts above what was seen",
		d.presented, d.view.Lease.Generation, d.state())
}

func (d *decision) sayForked() string {
	return d.say("token presented %s has the lease's generation but another term; %s. "+
		"It stems from a history that a restore has undone: acquire the lease again and compute anew", d.presented, d.state())
}

func (d *decision) sayReleased() string {
	return d.say("token presented %s is of a term that was released; %s. "+
		"Acquire the lease again before writing", d.presented, d.state())
}

func (d *decision) sayNotStamped() string {
	return d.say("the request carries token %s, but it was not copied into the annotation %s: "+
		"the policy fencedlease-stamps is not in force on this API server. Try again; if it stays so, look at the lease's condition Ready",
		d.presented, d.key)
}

func (d *decision) sayUnsupported(problem string) string {
	return d.say("cannot judge %s. The registration of the webhook does not ask for it: look at what changed it", problem)
}
