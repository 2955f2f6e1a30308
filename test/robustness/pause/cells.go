// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"fmt"
	"iter"
	"slices"
)

// Step is where a write pauses.
type Step string

// The steps, in the order of a write's way.
const (
	// BeforeSending: the process has made its last check, and nothing has left it.
	BeforeSending Step = "before sending"
	// InFlight: the process has written the request to its connection, and nothing has arrived.
	InFlight Step = "in flight"
	// BeforeCommit: the fence has admitted the write, which is not committed.
	BeforeCommit Step = "between check and commit"
	// BeforeAnswer: the write is committed, and its process does not know.
	BeforeAnswer Step = "between commit and answer"
	// After: the write has been answered.
	After Step = "after"
)

// Steps returns all steps.
func Steps() []Step { return []Step{BeforeSending, InFlight, BeforeCommit, BeforeAnswer, After} }

// before says that the write is committed before B acquires.
func (s Step) committed() bool { return s == BeforeAnswer || s == After }

// Carrier is how a write presents its token.
type Carrier string

// The carriers.
const (
	// Annotation: the write sets the token's annotation. A delete has none to set: A has asked for it by an earlier write
	// of the mark, the delete intent.
	Annotation Carrier = "annotation"
	// Extra: the request carries the token in its user's extra.
	Extra Carrier = "request extra"
	// Credential: the request is made with a credential of the term.
	Credential Carrier = "term credential"
	// None: the write carries nothing. It is for controls, which have no other way for a scale.
	None Carrier = "nothing"
)

// Carriers returns all carriers of a token.
func Carriers() []Carrier { return []Carrier{Annotation, Extra, Credential} }

// Strategy is how the lease is handed over, and what B does before the paused write goes on.
type Strategy string

// The strategies.
const (
	// LazyWritten: B has written each object.
	LazyWritten Strategy = "Lazy, B has written"
	// LazyStatus: B has written the status of each object, which moves no mark.
	LazyStatus Strategy = "Lazy, B has written the status only"
	// LazyUnwritten: B holds the lease and has written nothing.
	LazyUnwritten Strategy = "Lazy, B has not written yet"
	// Sealed: the handover is sealed, and B has written nothing.
	Sealed Strategy = "Seal"
	// SealedDeleting: as Sealed, and what is created late is deleted.
	SealedDeleting Strategy = "Seal, late creates are deleted"
)

// Strategies returns all strategies.
func Strategies() []Strategy { return append(LazyStrategies(), Sealed, SealedDeleting) }

// seals says that terms are sealed.
func (s Strategy) seals() bool { return s == Sealed || s == SealedDeleting }

// LazyStrategies returns the strategies without a seal.
func LazyStrategies() []Strategy { return []Strategy{LazyWritten, LazyStatus, LazyUnwritten} }

// Cell is one entry of the table.
type Cell struct {
	Strategy Strategy
	Step     Step
	Verb     *Verb
	Carrier  Carrier
}

// String names the cell.
func (c Cell) String() string {
	return fmt.Sprintf("%s; %s; %s by %s", c.Strategy, c.Step, c.Verb.Name, c.Carrier)
}

// Impossible says why there is no such cell, or is empty.
func (c Cell) Impossible() string {
	switch {
	case c.Carrier == Annotation && c.Verb.kind == writesScale:
		return "a Scale has no annotations of the object"
	case c.Carrier == None && c.Verb.kind != writesScale:
		return "an annotation can be carried"
	case c.Strategy == LazyStatus && c.Verb.creates() && !c.Step.committed():
		return "there is no object yet whose status B could write"
	default:
		return ""
	}
}

// Table returns the cells of the strategies and carriers, also those that are impossible.
func Table(strategies []Strategy, carriers []Carrier) iter.Seq[Cell] {
	return func(yield func(Cell) bool) {
		for _, strategy := range strategies {
			for _, step := range Steps() {
				for _, verb := range Verbs() {
					for _, carrier := range carriers {
						if !yield(Cell{strategy, step, verb, carrier}) {
							return
						}
					}
				}
			}
		}
	}
}

// Split parts cells into those that exist and the number of the others by their reason.
func Split(cells iter.Seq[Cell]) (possible []Cell, impossible map[string]int) {
	impossible = map[string]int{}
	for c := range cells {
		if reason := c.Impossible(); reason != "" {
			impossible[reason]++
			continue
		}
		possible = append(possible, c)
	}
	return possible, impossible
}

// ByStrategy returns the cells of one strategy.
func ByStrategy(cells []Cell, strategy Strategy) []Cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool { return c.Strategy != strategy })
}
