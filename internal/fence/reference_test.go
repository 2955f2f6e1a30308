// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/fencedlease/fencedlease/internal/fence"
)

// reference is the decision written a second time, from the text of the contract and with nothing of the package but its
// types: its own grammar of tokens, its own idea of what a write presents, and the rules as a list in the order in which
// the contract names them.
func reference(w fence.Write, v fence.View) essence {
	c := contract{w: w, v: v}
	c.mark, _ = parseByGrammar(stored(w.Old))
	for _, rule := range []func() (essence, bool){
		c.onlyWhatAGuardAsksFor,
		c.systemWritersWithAHarmlessDiff,
		c.aLeaseThatIsGoneProtectsNothing,
		c.nobodyRemovesTheMark,
		c.oneWellFormedToken,
		c.aMissingToken,
		c.aCredentialOfAnEndedTerm,
		c.aTokenBelowTheMark,
		c.aTokenAgainstTheLease,
	} {
		if e, decided := rule(); decided {
			return c.auditDeniesNothing(e)
		}
	}
	return essence{}
}

type contract struct {
	w    fence.Write
	v    fence.View
	mark parsed
}

type parsed struct {
	generation int64
	term       string
	operation  string
}

// presence says what a write shows of one annotation.
type presence struct {
	there bool
	text  string
}

var tokenGrammar = regexp.MustCompile(`^([1-9][0-9]{0,17})(?:\.([a-z0-9]{8}))?(?:/([-A-Za-z0-9_.:]{1,128}))?$`)

var recordGrammar = regexp.MustCompile(`^([-A-Za-z0-9_.:]{1,128})=[1-9][0-9]{0,17}(?:@[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?$`)

func parseByGrammar(p presence) (parsed, bool) {
	groups := tokenGrammar.FindStringSubmatch(p.text)
	if !p.there || groups == nil {
		return parsed{}, false
	}
	generation, err := strconv.ParseInt(groups[1], 10, 64)
	return parsed{generation, groups[2], groups[3]}, err == nil
}

func stored(o *fence.Object) presence {
	if o == nil {
		return presence{}
	}
	text, there := o.Annotations[tokenKey]
	return presence{there, text}
}

func has(list []string, name string) bool {
	for _, entry := range list {
		if entry == name {
			return true
		}
	}
	return false
}

// "anything else is a 500-class answer, never an admission": what the registration does not ask for.
func (c contract) onlyWhatAGuardAsksFor() (essence, bool) {
	type shape struct {
		operation, subresource string
		before, after          bool
	}
	asked := map[shape]bool{
		{"CREATE", "", false, true}:      true,
		{"UPDATE", "", true, true}:       true,
		{"UPDATE", "status", true, true}: true,
		{"UPDATE", "scale", true, true}:  true,
		{"DELETE", "", true, false}:      true,
	}
	s := shape{string(c.w.Operation), c.w.Subresource, c.w.Old != nil, c.w.New != nil}
	return unavailable("UnsupportedOperation"), !asked[s]
}

// "garbage collector and namespace controller may delete and may change ownerReferences and finalizers; the storage
// version migrator may write an unchanged object"; nobody, exempt or not, may lower or remove the mark.
func (c contract) systemWritersWithAHarmlessDiff() (essence, bool) {
	collects, migrates := has(c.w.System.Collectors, c.w.Writer.Username), has(c.w.System.Migrators, c.w.Writer.Username)
	untouched := c.w.Change == fence.ChangeNothing
	onlyOwners := untouched || c.w.Change == fence.ChangeOwnership
	main := c.w.Subresource == ""
	update := c.w.Operation == "UPDATE" && main && stored(c.w.Old) == stored(c.w.New)
	harmless := collects && c.w.Operation == "DELETE" && main ||
		collects && update && onlyOwners ||
		migrates && update && untouched
	return allow("SystemWriter"), harmless
}

// "Deleting a FencedLease ends its protection".
func (c contract) aLeaseThatIsGoneProtectsNothing() (essence, bool) {
	return allow("NotGuarded"), c.fresh() && c.v.Lease.Gone
}

func (c contract) fresh() bool { return c.v.Origin == fence.Linearizable }

// "Mark removed → deny, for everyone". Only a write of the main resource stores annotations.
func (c contract) nobodyRemovesTheMark() (essence, bool) {
	main := c.w.Operation == "UPDATE" && c.w.Subresource == ""
	return deny("MarkTampered"), main && c.mark.generation > 0 && !stored(c.w.New).there
}

// "Two values under one key, or an annotation and an extra that disagree, are malformed."
func (c contract) oneWellFormedToken() (essence, bool) {
	values := c.w.Writer.Extra[tokenKey]
	if len(values) > 1 {
		return deny("MalformedToken"), true
	}
	if c.changesAnnotation() && len(values) == 1 && values[0] != stored(c.w.New).text {
		return deny("MalformedToken"), true
	}
	p := c.presents()
	text, wellFormed := parseByGrammar(p)
	if p.there && !wellFormed {
		return deny("MalformedToken"), true
	}
	return deny("MalformedToken"), p.there && c.contradictsTheCredential(text)
}

// "It is made with a term credential, whose credential-id the lease lists in status.credentials, which says its term."
func (c contract) credential() (term string, listed bool) {
	ids := c.w.Writer.Extra[credentialKey]
	if len(ids) != 1 || len(ids[0]) < 4 || ids[0][:4] != "JTI=" {
		return "", false
	}
	for _, entry := range c.v.Lease.Credentials {
		if entry.ID == ids[0] {
			return entry.Term, true
		}
	}
	return "", false
}

// "A credential can be added only for the current term": one of any other term is of an ended one.
func (c contract) ended(term string) bool {
	return term != c.v.Lease.Term || c.v.Lease.Generation <= 0
}

// Two carriers must agree on generation and term. A cached lease may list a credential that has fallen out since.
func (c contract) contradictsTheCredential(text parsed) bool {
	term, listed := c.credential()
	switch {
	case !listed || !c.fresh():
		return false
	case text.term != "" && text.term != term:
		return true
	case c.ended(term):
		return text.generation >= c.v.Lease.Generation
	default:
		return text.generation != c.v.Lease.Generation
	}
}

// "Ended terms' entries stay while there is room, so that the answer is StaleToken."
func (c contract) aCredentialOfAnEndedTerm() (essence, bool) {
	term, listed := c.credential()
	return deny("StaleToken"), listed && !c.presents().there && c.ended(term)
}

// token is the token that counts: the text where there is one, as it may carry an operation, else the credential's.
func (c contract) token() (t parsed, text string) {
	if p := c.presents(); p.there {
		t, _ = parseByGrammar(p)
		return t, p.text
	}
	l := c.v.Lease
	text = strconv.FormatInt(l.Generation, 10)
	if l.Term != "" {
		text += "." + l.Term
	}
	return parsed{generation: l.Generation, term: l.Term}, text
}

// "new value differs from the stored one": an annotation that is as stored was inherited.
func (c contract) changesAnnotation() bool {
	return stored(c.w.New).there && stored(c.w.New) != stored(c.w.Old)
}

func (c contract) presents() presence {
	if values := c.w.Writer.Extra[tokenKey]; len(values) == 1 {
		return presence{true, values[0]}
	}
	if c.changesAnnotation() {
		return stored(c.w.New)
	}
	return presence{}
}

// "No token: deny if the writer is one of the guard's subjects (or there are none), else allow", with the delete intent,
// the override and the final delete, which are about writes without a token too.
func (c contract) aMissingToken() (essence, bool) {
	if _, listed := c.credential(); c.presents().there || listed {
		return essence{}, false
	}
	lease := c.v.Lease
	intent := c.w.Operation == "DELETE" && c.mark.operation == "delete" && c.mark.generation == lease.Generation &&
		(c.mark.term == "" || c.mark.term == lease.Term) && lease.Holder != ""
	switch {
	case !c.fresh():
		return needsRead, true
	case intent:
		return allow("DeleteIntent"), true
	case c.w.Override.Permitted && c.w.Override.Reason != "":
		return allow("Overridden"), true
	case c.finallyDeletes():
		return deny("FinalDelete"), true
	case c.v.MustPresent:
		return deny("MissingToken"), true
	default:
		return allow("NotSubject"), true
	}
}

// The API server deletes on an update whose result is terminating and has no finalizers. Other subresources than the main
// one keep the stored finalizers.
func (c contract) finallyDeletes() bool {
	if c.w.Operation != "UPDATE" || !c.w.Old.Terminating {
		return false
	}
	left := c.w.Old.Finalizers
	if c.w.Subresource == "" {
		left = c.w.New.Finalizers
	}
	return left == 0
}

// "Token generation < mark → Stale". A mark above 10^15 leaves one way out: "delete and create anew".
func (c contract) aTokenBelowTheMark() (essence, bool) {
	t, _ := c.token()
	wayOut := c.w.Operation == "DELETE" && c.mark.generation > 1_000_000_000_000_000
	return deny("StaleToken"), t.generation < c.mark.generation && !wayOut
}

// "Then by the lease: generation and term equal and held → allow; lower → Stale; same generation, other term → Forked;
// holder empty → Released; above the lease's → Future". A cached lease can only prove a token stale.
func (c contract) aTokenAgainstTheLease() (essence, bool) {
	t, text := c.token()
	lease := c.v.Lease
	// "The mark moves in the same commit": the token that the request carries must be in the object that is stored.
	stampable := c.w.Subresource == "" && c.w.Operation != "DELETE"
	moves := !stampable || stored(c.w.New) == presence{true, text}
	switch {
	case t.generation < lease.Generation:
		return deny("StaleToken"), true
	case !c.fresh() && c.theNextTermMovesTheMarkFirst(t, moves):
		return allow("SealedTerm"), true
	case !c.fresh():
		return needsRead, true
	case t.generation > lease.Generation:
		return deny("FutureToken"), true
	case t.term != "" && t.term != lease.Term:
		return deny("ForkedTerm"), true
	case lease.Holder == "":
		return deny("Released"), true
	case c.recorded(t.operation):
		return deny("AlreadyApplied"), true
	case !moves && !lease.Audit:
		return unavailable("NotStamped"), true
	case c.firstWriteMustWait():
		return unavailable("SealPending"), true
	default:
		return allow("CurrentToken"), true
	}
}

// "In a term with handover Seal, an update whose old mark, token and the cached lease's generation and sealedGeneration
// are all equal, under a guard without selectors, is admitted without a read." Equal means in the term, too. "Everything
// else (creates, deletes, scale, other guards, Lazy terms) reads", and so does the update that deletes.
func (c contract) theNextTermMovesTheMarkFirst(t parsed, moves bool) bool {
	l := c.v.Lease
	update := c.w.Operation == "UPDATE" && (c.w.Subresource == "" || c.w.Subresource == "status")
	inForce := c.v.SealCovers && !l.Audit && !l.Gone
	sealed := l.Handover == "Seal" && l.SealedGeneration == l.Generation && l.Holder != ""
	same := func(p parsed) bool { return p.generation == l.Generation && p.term == l.Term && l.Term != "" }
	by, listed := c.credential()
	return update && !c.recorded(t.operation) && !c.finallyDeletes() && inForce && sealed && same(t) && same(c.mark) && moves && (!listed || by == l.Term)
}

// "A write that presents an id already recorded is answered 403 AlreadyApplied". What begins with _ and the intent to
// delete are no ids.
func (c contract) recorded(id string) bool {
	if id == "" || id == "delete" || id[0] == '_' || c.w.Old == nil {
		return false
	}
	for _, entry := range strings.Split(c.w.Old.Annotations[operationsKey], " ") {
		if groups := recordGrammar.FindStringSubmatch(entry); groups != nil && groups[1] == id {
			return true
		}
	}
	return false
}

// "After an acquisition with seal: Required the controller stamps the new generation on each guarded object, and then sets
// sealedGeneration": until then nobody writes, not the new holder either.
func (c contract) firstWriteMustWait() bool {
	l := c.v.Lease
	return l.Seal == "Required" && l.SealedGeneration != l.Generation && !l.Audit
}

// "Audit mode denies nothing". A cached lease never admits, so that what it would refuse needs a read.
func (c contract) auditDeniesNothing(e essence) essence {
	switch {
	case e.Outcome != fence.Deny || !c.v.Lease.Audit:
		return e
	case !c.fresh():
		return needsRead
	default:
		e.Audited = true
		return e
	}
}
