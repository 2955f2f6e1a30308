// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// CannotStampError means that a write to a guarded object was not sent, as no annotation can carry the token with it. Wrap
// carries it with the request.
type CannotStampError struct {
	// Lease names the FencedLease that guards the object.
	Lease types.NamespacedName
	// Write names the method and the resource, and Reason says what keeps it from being stamped.
	Write, Reason string
}

// Error says which write it was and what to use instead.
func (e *CannotStampError) Error() string {
	return fmt.Sprintf("%s not sent: FencedLease %s guards it and %s; make the client from fenced.Wrap (Term.Wrap), which carries the token with the request",
		e.Write, e.Lease, e.Reason)
}
