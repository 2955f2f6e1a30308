// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package model is the promise as a sequential specification, for porcupine: one guarded object and what its lease says.
//
// Time is the store's: each commit and each change of the lease happens at its revision, in the order of revisions, at
// one moment between its call and its answer. A write has a second moment, that of its check, in the same interval and
// before its commit: there the lease must show its term as held. A history is linearizable if all these moments can be
// found. A write whose client got no answer may have been applied: if the store's history shows its commit it was, at
// the latest when that was observed; if not it was not, as that history is complete. A delete leaves no ID behind: one of
// those that may have done it must pass.
package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// state is what a partition is at one moment. It is comparable.
type state struct {
	epoch    int
	revision int64
	// The lease.
	exists     bool
	held       bool
	generation int64
	term       string
	sealed     int64
	// The object: mark and writer are generations.
	object         bool
	objectRevision int64
	mark           int64
	markTerm       string
	writer         int64
	// checked are the writes that have passed the check and are not committed, by their revisions.
	checked string
}

type kind int

const (
	// leaseChange sets what the lease says.
	leaseChange kind = iota
	// check is the moment at which a write is judged by the lease.
	check
	// commit is the moment at which a write is stored.
	commit
	// stamp is a commit of the product itself: a mark, or the deletion of a late create.
	stamp
	// read is an answered read.
	read
	// refusal is a refused write.
	refusal
	// restore turns everything back.
	restore
)

// author is who a write presents itself as.
type author struct {
	generation int64
	term       string
	// fast says that it may be admitted without a read of the lease, by the mark alone.
	fast bool
}

// input is one operation of the model.
type input struct {
	kind     kind
	epoch    int
	revision int64
	// authors are those who may have made a commit, all but one of them only for a delete.
	authors []author
	// separate says that the check is an operation of its own.
	separate bool
	// unguarded says that nothing was promised for it.
	unguarded bool
	// after is the state after a change of the lease, a commit or a restore, as far as it is of the lease or the object.
	after state
	text  string
}

// key tells the check and the commit of a write from those of others.
func (in *input) key() int64 { return in.revision }

func (s state) holds(a author) bool {
	return s.exists && s.held && s.generation == a.generation && s.term == a.term
}

func (s state) admits(a author) bool {
	return s.holds(a) || a.fast && s.mark == a.generation && s.markTerm == a.term
}

func (s state) setObject(from state) state {
	s.object, s.objectRevision, s.mark, s.markTerm = from.object, from.objectRevision, from.mark, from.markTerm
	return s
}

// comes tells whether a commit is the store's next.
func (s state) comes(in *input) bool { return in.epoch == s.epoch && in.revision > s.revision }

// step says whether an operation can happen in a state, and what follows.
func step(s state, in *input) (bool, state) {
	switch in.kind {
	case restore:
		next := in.after
		next.epoch = s.epoch + 1
		return true, next
	case leaseChange:
		if !s.comes(in) {
			return false, s
		}
		s.revision = in.revision
		s.exists, s.held, s.generation, s.term, s.sealed = in.after.exists, in.after.held, in.after.generation, in.after.term, in.after.sealed
		return true, s
	case check:
		// Of several that may have made a commit it is enough that one passes.
		if !slices.ContainsFunc(in.authors, s.admits) {
			return false, s
		}
		s.checked = add(s.checked, in.key())
		return true, s
	case refusal:
		a := in.authors[0]
		return !s.holds(a) || s.mark > a.generation, s
	case read:
		return s.object == in.after.object && (!s.object || s.objectRevision == in.after.objectRevision), s
	case stamp:
		if !s.comes(in) || in.after.object && in.after.mark < s.mark && !in.unguarded {
			return false, s
		}
		s.revision = in.revision
		s = s.setObject(in.after)
		s.writer = max(s.writer, s.mark)
		if !s.object {
			s.writer = 0
		}
		return true, s
	default:
		return s.commit(in)
	}
}

// commit stores a write of one of its authors.
func (s state) commit(in *input) (bool, state) {
	if !s.comes(in) {
		return false, s
	}
	created := !s.object
	i := slices.IndexFunc(in.authors, func(a author) bool {
		switch {
		case in.unguarded:
			return true
		case in.separate && !has(s.checked, in.key()), !in.separate && !s.admits(a):
			return false
		// A create meets no mark.
		case !created && (a.generation < s.writer || a.generation < s.mark):
			return false
		}
		return true
	})
	if i < 0 {
		return false, s
	}
	s.revision = in.revision
	s = s.setObject(in.after)
	s.writer = max(s.writer, in.authors[i].generation)
	if created {
		s.writer = in.authors[i].generation
	}
	if in.unguarded || !s.object {
		s.writer = 0
	}
	s.checked = remove(s.checked, in.key())
	return true, s
}

func word(id int64) string { return " " + strconv.FormatInt(id, 10) + " " }

func has(checked string, id int64) bool { return strings.Contains(checked, word(id)) }

// add keeps the order of IDs, so that equal sets are equal texts.
func add(checked string, id int64) string {
	ids := append(strings.Fields(checked), strconv.FormatInt(id, 10))
	slices.Sort(ids)
	return join(ids)
}

func remove(checked string, id int64) string {
	ids := slices.DeleteFunc(strings.Fields(checked), func(text string) bool { return text == strconv.FormatInt(id, 10) })
	return join(ids)
}

func join(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return " " + strings.Join(ids, "  ") + " "
}

// specification returns the model of a partition that begins in a state.
func specification(begin state) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return begin },
		Step: func(s, in, _ any) (bool, any) {
			return step(s.(state), in.(*input)) //nolint:forcetypeassert // nothing else is in this model
		},
		DescribeOperation: func(in, _ any) string { return in.(*input).text }, //nolint:forcetypeassert // as above
		DescribeState:     func(s any) string { return describe(s.(state)) },  //nolint:forcetypeassert // as above
	}
}

func describe(s state) string {
	lease := "no lease"
	if s.exists {
		lease = fmt.Sprintf("lease %d.%s", s.generation, s.term)
		if !s.held {
			lease += " (released)"
		}
	}
	object := "no object"
	if s.object {
		object = fmt.Sprintf("object at %d with mark %d", s.objectRevision, s.mark)
	}
	text := fmt.Sprintf("epoch %d, revision %d: %s, %s", s.epoch, s.revision, lease, object)
	if s.checked != "" {
		text += ", checked:" + s.checked
	}
	return text
}
