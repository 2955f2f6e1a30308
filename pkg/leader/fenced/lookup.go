// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/operation"
)

// OperationState is what an object says about an operation.
type OperationState string

const (
	// OperationApplied means that the object has a record of the operation.
	OperationApplied OperationState = "Applied"
	// OperationNotRecorded means that the object has records, and none of the operation. It was not applied since the oldest of
	// them, the horizon. Whether it was applied before that, nobody knows.
	OperationNotRecorded OperationState = "NotRecorded"
	// OperationUnknown means that the object has no records, or what it has cannot be read. Nothing follows from that.
	OperationUnknown OperationState = "Unknown"
)

// OperationOutcome is the answer to the question what became of an operation.
type OperationOutcome struct {
	// State says which of the others are set.
	State OperationState
	// Record is that of the operation, if it was applied.
	Record operation.Record
	// Horizon is the oldest record that the object has, if the operation is not recorded.
	Horizon operation.Record
	// Problem says why the object's records cannot be read, if they are there.
	Problem error
}

// LookupOperation reads an object, of which namespace and name are enough, and says what it tells about an operation of a
// lease. Give it a reader that asks the API server: what a cache does not show may be stored all the same. An object that
// does not exist is an error, NotFound: what was done to it cannot be known.
func LookupOperation(ctx context.Context, reader client.Reader, obj client.Object, lease types.NamespacedName, id string) (OperationOutcome, error) {
	if err := CheckOperation(id); err != nil {
		return OperationOutcome{}, err
	}
	if err := reader.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
		return OperationOutcome{}, fmt.Errorf("look up operation %s: %w", id, err)
	}
	return OutcomeOf(obj.GetAnnotations(), lease.Name, id), nil
}

// OutcomeOf is LookupOperation for the annotations of an object that was read before.
func OutcomeOf(annotations map[string]string, leaseName, id string) OperationOutcome {
	text := annotations[v1alpha1.OperationsKey(leaseName)]
	if record, found := operation.Find(text, id); found {
		return OperationOutcome{State: OperationApplied, Record: record}
	}
	records, err := operation.Parse(text)
	if err != nil || len(records) == 0 {
		return OperationOutcome{State: OperationUnknown, Problem: err}
	}
	return OperationOutcome{State: OperationNotRecorded, Horizon: records[len(records)-1]}
}
