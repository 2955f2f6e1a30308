// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// Backend is what a story is played against.
type Backend interface {
	// SetLease creates a FencedLease that guards all objects with their subresources, or gives it another spec, and returns
	// when the guard is in force.
	SetLease(ctx context.Context, lease Lease) error
	DeleteLease(ctx context.Context, name string) error
	// Acquire opens a term for the holder and returns when it may write.
	Acquire(ctx context.Context, lease, holder string) (token.Token, error)
	// Release ends the term of a token, as its holder does, who may have lost it.
	Release(ctx context.Context, lease, holder string, term token.Token) (Outcome, error)
	// Begin makes a write and keeps it between its check and its commit. If it is refused, it has ended.
	Begin(ctx context.Context, w Write) (Pending, error)
	// Do makes a write.
	Do(ctx context.Context, w Write) (Outcome, error)
	// Get returns an object, or nil if there is none.
	Get(ctx context.Context, name string) (*Object, error)
	// Settle returns when no object has a mark of a term that a seal has ended.
	Settle(ctx context.Context, name string) error
}

// Pending is a write that is kept between its check and its commit.
type Pending interface {
	// Finish lets the write go on, and returns what became of it.
	Finish(ctx context.Context) (Outcome, error)
}

// Lease is what a story says of a FencedLease.
type Lease struct {
	Name        string
	Handover    v1alpha1.Handover
	Enforcement v1alpha1.Enforcement
	LateCreates v1alpha1.LateCreates
}

// Outcome is what became of a write: OK, Conflict, Exists, Missing, or why it was refused.
type Outcome string

// The outcomes that are no refusals of the fence.
const (
	OK       Outcome = "ok"
	Conflict Outcome = "conflict"
	Exists   Outcome = "exists already"
	Missing  Outcome = "not found"
)

func refused(cause string) Outcome { return Outcome("refused: " + cause) }

// Object is what a story sees of an object.
type Object struct {
	Value, Phase string
	Replicas     int64
	Terminating  bool
	// Marks are the values of the marks by lease.
	Marks map[string]string
}

// Verb is what a write does.
type Verb string

// The verbs.
const (
	Create Verb = "create"
	// Update changes one field by a merge patch.
	Update Verb = "write"
	// Replace sends the whole object back, as it is stored at the time of the command, with one field changed.
	Replace Verb = "replace"
	// Strip removes the mark by a merge patch.
	Strip Verb = "strip"
	// Intend changes nothing but the mark, which asks for the object's deletion.
	Intend Verb = "intend"
	Status Verb = "status"
	Scale  Verb = "scale"
	Delete Verb = "delete"
	// Finalize removes the finalizers.
	Finalize Verb = "finalize"
)

// Carrier is how a token is presented.
type Carrier string

// The carriers.
const (
	ByAnnotation Carrier = "annotation"
	ByRequest    Carrier = "request"
	ByNothing    Carrier = "nothing"
)

// Write is one write of a story.
type Write struct {
	Verb   Verb
	Object string
	Value  string
	// Tokens are what is presented, by lease.
	Tokens map[string]string
	By     Carrier
	// Lease is the one that Strip is about, and Reason the one given for passing its fence.
	Lease, Reason string
	// Finalizer gives a created object one.
	Finalizer bool
}
