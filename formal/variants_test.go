// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package formal_test

import "strings"

// variant is one model to be checked.
type variant struct {
	// says is what the variant shows, as a sentence.
	says string
	// defines are the -D switches.
	defines string
	// breaks is the property for which SPIN must find a counter-example; empty if all must hold.
	breaks string
	// unreached are statements that this choice of parts cannot reach.
	unreached []string
	// long variants are checked in the long form only.
	long bool
}

// The parts of the model.
const (
	lazy          = "TERMS=3"
	lazyTermless  = "TERMS=2 TERMLESS"
	seal          = "TERMS=2 SEALS WRITES=1"
	sealPaused    = "TERMS=2 SEALS"
	sealThenLazy  = "TERMS=3 SEALS TOLAZY WRITES=1"
	lateDeletes   = "TERMS=2 SEALS LATEDELETES WRITES=1"
	recreate      = "TERMS=2 RECREATES=1"
	recreateSeal  = "TERMS=2 RECREATES=1 SEALS WRITES=1"
	restore       = "TERMS=3 RESTORES WRITES=1"
	restorePaused = "TERMS=2 RESTORES"
	restoreSeen   = "TERMS=2 RESTORES SEEN TERMLESS WRITES=1"
	restoreSeal   = "TERMS=2 RESTORES SEALS WRITES=1"
	leaseBack     = "TERMS=2 LEASEBACK"
)

// noStatus are what a model without status writes cannot reach.
var noStatus = []string{"object.last = t"}

// holding are the models in which every property must hold.
var holding = []variant{
	{says: "Lazy: three terms, two writes in flight", defines: lazy},
	{says: "Lazy: tokens without terms", defines: lazyTermless},
	{says: "Seal: two terms, two writes and a stamp in flight", defines: sealPaused},
	{says: "Seal and back to Lazy: three terms, one write in flight", defines: sealThenLazy},
	{says: "Seal: two terms, one write in flight, two replicas", defines: seal + " REPLICAS=2"},
	{says: "Seal: late creates are deleted", defines: lateDeletes},
	{says: "the lease is deleted and created anew", defines: recreate},
	{says: "a sealed lease is deleted and created anew, with either handover", defines: recreateSeal},
	{says: "the store is restored: three terms", defines: restore},
	{says: "the store is restored: two terms, two writes in flight", defines: restorePaused},
	{says: "the store is restored, the floor is raised before the next term: tokens without terms", defines: restoreSeen},
	{says: "the store is restored, with seals; replicas keep their copies", defines: restoreSeal},
	{says: "the lease alone goes back", defines: leaseBack, unreached: noStatus},

	{says: "Lazy: four terms", defines: "TERMS=4", long: true},
	{says: "Seal and back to Lazy: three terms, one write in flight, two replicas", defines: sealThenLazy + " REPLICAS=2", long: true},
	{says: "Seal: three terms, two writes and a stamp in flight", defines: "TERMS=3 SEALS", long: true},
	{says: "Seal: two terms, two writes in flight, two replicas", defines: "TERMS=2 SEALS REPLICAS=2", long: true},
	{says: "a sealed lease is deleted and created anew: three terms", defines: "TERMS=3 RECREATES=1 SEALS WRITES=1", long: true},
	{says: "the store is restored, with seals: three terms", defines: "TERMS=3 RESTORES SEALS WRITES=1", long: true},
	{says: "the lease alone goes back: three terms", defines: "TERMS=3 LEASEBACK", long: true, unreached: noStatus},
}

// broken are the models with one guard taken out, and what SPIN must find then.
var broken = []variant{
	{says: "a conflict does not run admission again", defines: lazy + " NO_READMISSION", breaks: "fell"},
	{says: "the mark and the fast path's comparison with it are left out", defines: seal + " NO_MARK", breaks: "fell"},
	{says: "a token below the mark is not refused when the lease has gone back", defines: leaseBack + " WRITES=1 NO_BELOW_MARK", breaks: "fell"},
	{says: "the mark can be removed", defines: leaseBack + " WRITES=1 MARK_MAY_VANISH", breaks: "fell"},
	{says: "the mark can be lowered", defines: seal + " MARK_MAY_FALL", breaks: "fell"},
	{says: "an inherited annotation presents a token", defines: lazy + " INHERITED_PRESENTS", breaks: "fell"},
	{says: "the token is not compared with the lease's generation", defines: lazyTermless + " NO_STALE_CHECK", breaks: "tooLate"},
	{says: "a token above the lease's generation passes", defines: restoreSeen + " NO_FUTURE_CHECK", breaks: "tooLate"},
	{says: "terms are not compared", defines: restore + " NO_TERM_CHECK", breaks: "tooLate"},
	{says: "tokens have no terms and nobody has seen the undone history", defines: restore + " TERMLESS", breaks: "tooLate"},
	{says: "a released term passes", defines: lazy + " NO_RELEASE_CHECK", breaks: "tooLate"},
	{says: "the cached lease admits", defines: lazy + " ADMIT_FROM_CACHE", breaks: "tooLate"},
	{says: "a read that began before the write arrived is shared with it", defines: lazy + " READ_BEFORE_ARRIVAL", breaks: "tooLate"},
	{says: "the same identity keeps its generation when it acquires again", defines: lazy + " SAME_IDENTITY_KEEPS_GENERATION", breaks: "reused"},
	{says: "a lease that is created anew starts from nothing", defines: recreate + " NO_FLOOR", breaks: "reused"},
	{says: "the floor is not raised above what a restore has undone", defines: restoreSeen + " NO_FLOOR", breaks: "tooLate"},
	{says: "the new holder's writes are admitted before the seal", defines: seal + " NO_WAIT_FOR_SEAL", breaks: "fell"},
	{says: "sealedGeneration is written before the stamps are done", defines: seal + " NO_WAIT_FOR_STAMPS", breaks: "unsealed"},
	{says: "the list of the seal comes from a cache", defines: seal + " LIST_FROM_CACHE", breaks: "unsealed"},
	{says: "a stamp is not conditioned on what it was judged on", defines: "TERMS=3 SEALS WRITES=1 NO_STAMP_CONDITION", breaks: "unsealed"},
	{says: "the fast path is open in Lazy terms", defines: sealThenLazy + " FAST_PATH_IN_LAZY_TERMS", breaks: "fell"},
	{says: "the term after a Seal term need not be sealed", defines: sealThenLazy + " NO_SEAL_AFTER_SEAL_TERM", breaks: "fell"},
	{says: "the term after one that owed a seal need not be sealed", defines: sealThenLazy + " NO_SEAL_AFTER_UNSEALED", breaks: "fell"},
	{says: "a replica answers with leases older than the registration", defines: recreateSeal + " NO_WAIT_FOR_REGISTRATION", breaks: "fell"},
	{says: "the holder's writes are admitted before the seal, over a restore of the store", defines: restoreSeal + " NO_WAIT_FOR_SEAL", breaks: "fell"},
	{says: "a late create is deleted whatever was written to it since its stamp", defines: lateDeletes + " NO_REMOVAL_CONDITION", breaks: "destroyed"},
	{says: "a late create is deleted though it was written before its stamp", defines: lateDeletes + " REMOVAL_AFTER_CONFLICT", breaks: "destroyed"},
	{says: "the seal goes by the number of the term, over a restore",
		defines: "TERMS=3 SEALS WRITES=1 RESTORES CONTROLLER_SURVIVES_RESTORE SEAL_BY_NUMBER", breaks: "fell", long: true},
}

// redundant are guards that another one covers: each can be taken out alone, but not both.
var redundant = []variant{
	{says: "the fast path takes any mark; a token below the mark is refused still", defines: seal + " FAST_PATH_IGNORES_MARK"},
	{says: "the fast path is open before the term is sealed; its mark must be the term's still", defines: seal + " FAST_PATH_UNSEALED"},
	{says: "both of the mark's comparisons are left out of the fast path",
		defines: seal + " FAST_PATH_IGNORES_MARK NO_BELOW_MARK", breaks: "fell"},
}

// properties are what the model asserts, by the name of the variable that must never become true.
var properties = map[string]string{
	"fell":      "no older term's write is committed after a newer one's",
	"tooLate":   "no write is committed that arrived after its term was over",
	"unsealed":  "after a seal no older term's write is committed",
	"reused":    "a generation is above all that were handed out before",
	"revived":   "no write of an undone history is committed",
	"destroyed": "no late create is deleted that the holder has written",
}

// flags returns the switches as arguments.
func (v variant) flags() []string {
	var flags []string
	last := map[string]int{}
	for _, define := range strings.Fields(v.defines) {
		name, _, _ := strings.Cut(define, "=")
		// A later value replaces an earlier one.
		if at, twice := last[name]; twice {
			flags[at] = "-D" + define
			continue
		}
		last[name] = len(flags)
		flags = append(flags, "-D"+define)
	}
	return flags
}
