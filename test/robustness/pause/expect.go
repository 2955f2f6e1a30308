// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// Answer is what became of a write: committed, or the cause of its refusal.
type Answer string

// The answers of the table.
const (
	Committed     Answer = "committed"
	StaleToken    Answer = "StaleToken"
	MissingToken  Answer = "MissingToken"
	MarkPolicy    Answer = "refused by the mark policy"
	Conflict      Answer = "Conflict"
	AlreadyExists Answer = "AlreadyExists"
)

// Holder is one of the two leaders.
type Holder string

// The leaders.
const (
	A Holder = "a"
	B Holder = "b"
)

// State is what is stored of an object.
type State struct {
	Gone, Deleting bool
	Value, Phase   string
	Replicas       int64
	// Mark is whose mark the object carries.
	Mark Holder
}

// End is how a cell ends.
type End struct {
	Answer Answer
	Stored State
}

// Why says in a word why a write may be committed or must not.
type Why string

// The reasons of ends.
const (
	// WasBefore: it was committed before B acquired the lease.
	WasBefore Why = "committed, it was before"
	// Window: the stated window of a lazy handover.
	Window Why = "committed, the stated window of a lazy handover"
	// LateCreate: no API conditions a create on another object.
	LateCreate Why = "committed, a late create"
	// Fenced: it must be refused.
	Fenced Why = "refused"
)

// Why returns the reason of the cell's end.
func (c Cell) Why() Why {
	switch {
	case c.Step.committed():
		return WasBefore
	case c.Step == BeforeCommit && c.Strategy == LazyUnwritten:
		return Window
	case c.Step == BeforeCommit && c.Strategy.seals() && c.Verb.creates():
		return LateCreate
	default:
		return Fenced
	}
}

// Expect returns how the product must let the cell end.
func (c Cell) Expect() End {
	if c.Why() == Fenced {
		return End{Answer: c.refusal(), Stored: c.stored(false)}
	}
	return End{Answer: Committed, Stored: c.stored(true)}
}

// refusal returns the cause of the refusal of a write that must be refused.
func (c Cell) refusal() Answer {
	moved := c.Strategy != LazyUnwritten // B's write, or the seal, has changed the object's revision
	marked := c.Strategy == LazyWritten || c.Strategy.seals()
	exists := !c.Verb.creates() || c.Verb.applies && c.Strategy == LazyWritten
	switch {
	case c.Verb.conditioned && moved:
		// The API server compares versions before its validating phase.
		return Conflict
	case c.Verb.creates() && !c.Verb.applies && c.Step == BeforeCommit:
		// It was admitted, and the storage finds B's object.
		return AlreadyExists
	case c.Verb.removes() && c.Carrier == Annotation:
		// The delete intent is of A's generation, and the delete itself presents nothing.
		return MissingToken
	case marked && exists && c.Carrier != Credential && (c.Verb.kind == writesMain || c.Verb.applies):
		// The policy sees the lower token in the annotation, where the request or the policy for stamps has put it. A
		// credential of an ended term is not put there.
		return MarkPolicy
	default:
		return StaleToken
	}
}

// stored returns what is stored in the end, if A's write has been committed or has not.
func (c Cell) stored(committed bool) State {
	s := State{Gone: true}
	if !c.Verb.creates() {
		s = State{Value: first, Replicas: replicasFirst, Mark: A}
	}
	ofWriter := func() {
		if !committed {
			return
		}
		switch c.Verb.kind {
		case writesNew:
			s = State{Value: ofA, Mark: A}
		case writesMain:
			s.Value, s.Mark = ofA, A
		case writesStatus:
			s.Phase = ofA
		case writesScale:
			s.Replicas = replicasOfA
		case deletes:
			s = State{Gone: true}
		case marksDeleted:
			s.Deleting = true
		}
	}
	ofSuccessor := func() {
		switch {
		case c.Strategy == LazyWritten && s.Gone:
			s = State{Value: ofB, Mark: B}
		case c.Strategy == LazyWritten:
			s.Value, s.Mark = ofB, B
		case c.Strategy == LazyStatus && !s.Gone:
			s.Phase = ofB
		case c.Strategy.seals() && !s.Gone:
			s.Mark = B
		}
	}
	if c.Step.committed() {
		ofWriter()
		ofSuccessor()
		return s
	}
	ofSuccessor()
	ofWriter()
	if c.Why() == LateCreate {
		// It is stamped, or deleted, as soon as it is seen.
		ofSuccessor()
		if c.Strategy == SealedDeleting {
			s = State{Gone: true}
		}
	}
	return s
}

// AnswerOf classifies the answer to a write.
func AnswerOf(err error) Answer {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return Committed
	case !errors.As(err, &status):
		return Answer("no answer: " + err.Error())
	}
	s := status.Status()
	switch {
	case s.Code == http.StatusForbidden && s.Reason == v1alpha1.StatusReasonFenced && s.Details != nil && len(s.Details.Causes) > 0:
		return Answer(s.Details.Causes[0].Type)
	case s.Code == http.StatusForbidden && strings.Contains(s.Message, "must not fall or vanish"):
		return MarkPolicy
	case s.Reason == metav1.StatusReasonConflict:
		return Conflict
	case s.Reason == metav1.StatusReasonAlreadyExists:
		return AlreadyExists
	default:
		return Answer(fmt.Sprintf("%d %s: %s", s.Code, s.Reason, s.Message))
	}
}
