// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/pkg/operation"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// Operation is a business operation: something that is to be done to an object once, whoever leads and however often it is
// tried. Its methods may be called by several goroutines.
type Operation struct {
	id     string
	leases []types.NamespacedName
	outer  *Operation

	mu      sync.Mutex
	replays []Replay
}

// Replay is a write that was not applied, as its operation had been applied to the object before.
type Replay struct {
	// Lease names the FencedLease under which the operation was applied.
	Lease types.NamespacedName
	// Kind and Object name the object.
	Kind   schema.GroupKind
	Object types.NamespacedName
	// Record says under which generation the operation was applied, and when.
	Record operation.Record
}

type operationKey struct{}

// WithOperation returns a context whose writes of guarded objects are those of one operation: clients of Wrap, Client and
// Replaying present the id with the token, and the API server applies each id once to an object, also across generations,
// as long as the object keeps its record. The id has the grammar of an operation in a token: 1 to 128 of A-Z, a-z, 0-9 and
// -_.:, not beginning with _ and not "delete".
//
// The id stands for what is done and must follow from it, so that a successor makes the same: "import-17", not a random
// text. It is recorded on each object by itself: one operation may write several objects, each once. A second write of one
// object takes an operation of its own, or is made with the context without one.
//
// The operation is that of all leases, or of those named; of two in a context the inner one counts. A write that presents two
// operations, each for a lease of its own, is a replay if both are recorded, and refused if one is.
func WithOperation(ctx context.Context, id string, leases ...types.NamespacedName) (context.Context, *Operation, error) {
	if err := CheckOperation(id); err != nil {
		return nil, nil, err
	}
	outer, _ := ctx.Value(operationKey{}).(*Operation)
	o := &Operation{id: id, leases: slices.Clone(leases), outer: outer}
	return context.WithValue(ctx, operationKey{}, o), o, nil
}

// CheckOperation returns an error that says what keeps a text from being the id of an operation.
func CheckOperation(id string) error {
	if !token.IsBusinessOperation(id) {
		return fmt.Errorf("use operation id %.*q: it must not be empty, begin with %q or be %q: those are never recorded",
			token.MaxOperationLength, id, token.NoncePrefix, token.OperationDelete)
	}
	if err := token.CheckOperation(id); err != nil {
		return fmt.Errorf("use operation id %.*q: %w", token.MaxOperationLength, id, err)
	}
	return nil
}

// ID returns the id.
func (o *Operation) ID() string { return o.id }

// Replayed returns the record of the last write of the operation that was a replay, and whether there was one. Clients of
// Client and Replaying report replays here; those of Wrap alone answer with an error, see AlreadyAppliedRecord.
func (o *Operation) Replayed() (operation.Record, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.replays) == 0 {
		return operation.Record{}, false
	}
	return o.replays[len(o.replays)-1].Record, true
}

// Replays returns all replays, each object and lease once.
func (o *Operation) Replays() []Replay {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.replays)
}

func (o *Operation) replayed(r Replay) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.replays = slices.DeleteFunc(o.replays, func(before Replay) bool {
		return before.Lease == r.Lease && before.Kind == r.Kind && before.Object == r.Object
	})
	o.replays = append(o.replays, r)
}

// presentingKey is, for a lease, the key of contexts whose writes go through a client that presents the lease's operation
// itself, or knows that the write needs none.
type presentingKey types.NamespacedName

// presenting returns the context for the client below.
func (c *fencedClient) presenting(ctx context.Context) context.Context {
	if ctx.Value(operationKey{}) == nil {
		return ctx
	}
	for _, s := range c.stampers {
		ctx = context.WithValue(ctx, presentingKey(s.possession.Lease()), true)
	}
	return ctx
}

// operationOf returns the operation of a lease that a context carries, or nil.
func operationOf(ctx context.Context, lease types.NamespacedName) *Operation {
	o, _ := ctx.Value(operationKey{}).(*Operation)
	for ; o != nil; o = o.outer {
		if len(o.leases) == 0 || slices.Contains(o.leases, lease) {
			return o
		}
	}
	return nil
}
