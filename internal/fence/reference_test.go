// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"regexp"
	"strconv"

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
	_, wellFormed := parseByGrammar(p)
	return deny("MalformedToken"), p.there && !wellFormed
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
	if c.presents().there {
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
	t, _ := parseByGrammar(c.presents())
	wayOut := c.w.Operation == "DELETE" && c.mark.generation > 1_000_000_000_000_000
	return deny("StaleToken"), t.generation < c.mark.generation && !wayOut
}

// "Then by the lease: generation and term equal and held → allow; lower → Stale; same generation, other term → Forked;
// holder empty → Released; above the lease's → Future". A cached lease can only prove a token stale.
func (c contract) aTokenAgainstTheLease() (essence, bool) {
	t, _ := parseByGrammar(c.presents())
	lease := c.v.Lease
	// "The mark moves in the same commit": the token that the request carries must be in the object that is stored.
	stampable := c.w.Subresource == "" && c.w.Operation != "DELETE"
	moves := !stampable || stored(c.w.New) == c.presents()
	switch {
	case t.generation < lease.Generation:
		return deny("StaleToken"), true
	case !c.fresh():
		return needsRead, true
	case t.generation > lease.Generation:
		return deny("FutureToken"), true
	case t.term != "" && t.term != lease.Term:
		return deny("ForkedTerm"), true
	case lease.Holder == "":
		return deny("Released"), true
	case !moves && !lease.Audit:
		return unavailable("NotStamped"), true
	default:
		return allow("CurrentToken"), true
	}
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
