// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// State is how far a seal is.
type State string

const (
	// Stamping means that objects are being stamped.
	Stamping State = "Stamping"
	// Done means that every guarded object carried the term's mark at one moment after the seal had begun.
	Done State = "Done"
	// Forbidden means that the manager lacks a right on a guarded kind.
	Forbidden State = "Forbidden"
	// Failing means that something else keeps objects from being stamped. It is tried again.
	Failing State = "Failing"
)

// Status is what has become of an order.
type Status struct {
	State State
	// Message says what is wrong, or is empty. After Done it is about objects that came later.
	Message string
	// Stamped is the number of objects stamped for this order, and Pending about how many are still to be looked at.
	Stamped, Pending int64
	// Late are the objects that were created late, as far as this order has seen them.
	Late Late
}

// Late are late creates.
type Late struct {
	Count int
	// Last describes the last one, and Deleted says whether it was deleted.
	Last    string
	Deleted bool
}

// missingRightError is an error that a rule of RBAC would mend.
type missingRightError struct {
	verb     string
	resource schema.GroupResource
	// needed are the verbs that a seal needs.
	needed []string
	err    error
}

func (e *missingRightError) Error() string {
	return fmt.Sprintf("the manager may not %s %s: create a ClusterRole with the label rbac.fencedlease.io/aggregate-to-guarded-kinds: \"true\" and the rule "+
		"{apiGroups: [%s], resources: [%s], verbs: [%s]}, as in config/samples/guarded_kinds_role.yaml (%v)",
		e.verb, e.resource, e.resource.Group, e.resource.Resource, strings.Join(e.needed, ", "), e.err)
}

func (e *missingRightError) Unwrap() error { return e.err }

// explained adds which right is missing to an error of RBAC. Refusals by admission are told apart by their text alone: both
// are answered by the same code and reason.
func (s *session) explained(err error, verb string, resource schema.GroupResource) error {
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot "+verb+" resource") {
		return s.lacks(verb, resource, err)
	}
	return fmt.Errorf("%s %s: %w", verb, resource, err)
}

func (s *session) lacks(verb string, resource schema.GroupResource, err error) error {
	needed := []string{"get", "list", "watch", "patch"}
	if s.order.DeleteLate {
		needed = append(needed, "delete")
	}
	return &missingRightError{verb: verb, resource: resource, needed: needed, err: err}
}

// stateOf says what an error means for the status.
func stateOf(err error) State {
	var missing *missingRightError
	if errors.As(err, &missing) {
		return Forbidden
	}
	return Failing
}
