// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/operation"
)

// operationsIn returns the marks that present an operation.
func operationsIn(marks []mark) []mark {
	var found []mark
	for _, m := range marks {
		if m.operation != nil {
			found = append(found, m)
		}
	}
	return found
}

// settle turns the error of a write of an object into success, if the write's operation is recorded on the object as it is
// stored, and puts that into the caller's object. Every other error stays what it is.
func (c *fencedClient) settle(ctx context.Context, obj client.Object, marks []mark, err error) error {
	current, err := c.replay(ctx, obj, marks, err)
	if current != nil {
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(current).Elem())
	}
	return err
}

// replay returns the object as it is stored if the write that failed was a replay, and otherwise the error.
func (c *fencedClient) replay(ctx context.Context, obj client.Object, marks []mark, err error) (client.Object, error) {
	presented := operationsIn(marks)
	if err == nil || len(presented) == 0 {
		return nil, err
	}
	told := sayApplied(presented, err)
	_, applied := AlreadyAppliedRecord(told)
	if !applied && !mayHideReplay(err) {
		return nil, err
	}
	current, errRead := c.readAnew(ctx, obj)
	switch {
	case errRead != nil && applied:
		return nil, fmt.Errorf("read the object to which the operation was applied before: %w (%w)", errRead, told)
	case errRead != nil || obj.GetUID() != "" && obj.GetUID() != current.GetUID():
		return nil, told
	}
	recorded := map[*Operation][]Replay{}
	for _, m := range presented {
		record, found := operation.Find(current.GetAnnotations()[v1alpha1.OperationsKey(m.lease.Name)], m.operation.id)
		if !found {
			continue
		}
		gvk, errKind := c.inner.GroupVersionKindFor(obj)
		if errKind != nil {
			return nil, errKind
		}
		recorded[m.operation] = append(recorded[m.operation],
			Replay{Lease: m.lease, Kind: gvk.GroupKind(), Object: client.ObjectKeyFromObject(current), Record: record})
	}
	if len(recorded) == 0 {
		// What was read is another object, or comes from a cache that is behind.
		return nil, told
	}
	// One record is enough for an operation of several leases, as another lease may keep none. Of several operations each
	// needs its own: the write that was applied before was another one than this, of which nothing was written.
	for _, m := range presented {
		if recorded[m.operation] == nil {
			return nil, fmt.Errorf("write operation %s of FencedLease %s, which is not recorded, together with one that was applied before: %w", m.operation.id, m.lease, told)
		}
	}
	for o, replays := range recorded {
		for _, r := range replays {
			o.replayed(r)
		}
	}
	return current, nil
}

// mayHideReplay reports whether an API server answers like this before the fence sees the write, also if it repeats one:
// the object exists, its version has moved on, or what is to be changed has been changed.
func mayHideReplay(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err)
}

// sayApplied turns the answer that a write presents no token into the one that its operation was applied before. A mark
// that stays as it is stored presents nothing; this one was set by an earlier write of the same operation.
func sayApplied(presented []mark, err error) error {
	refusal, ok := Cause(err)
	if !ok || refusal.Type != MissingToken {
		return err
	}
	for _, m := range presented {
		if m.lease.Name != refusal.Lease.Name || refusal.Record.Operation != m.operation.id {
			continue
		}
		var answer apierrors.APIStatus
		if !errors.As(err, &answer) || answer.Status().Details == nil || len(answer.Status().Details.Causes) == 0 {
			return err
		}
		status := answer.Status()
		status.Details = status.Details.DeepCopy()
		status.Details.Causes[0].Type = metav1.CauseType(AlreadyApplied)
		status.Message = fmt.Sprintf("FencedLease %s: operation %s was applied before, as %s: %s", refusal.Lease, m.operation.id, refusal.Record, refusal.Message)
		status.Details.Causes[0].Message = status.Message
		return &apierrors.StatusError{ErrStatus: status}
	}
	return err
}

// readAnew reads an object from the API server, or as the client below does if no reader was given, into a new one:
// decoding into one that is filled keeps what the answer does not have.
func (c *fencedClient) readAnew(ctx context.Context, obj client.Object) (client.Object, error) {
	current, ok := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
	if !ok {
		return nil, fmt.Errorf("make another %T: it is no object", obj)
	}
	if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		current.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return current, c.reader.Get(ctx, client.ObjectKeyFromObject(obj), current)
}

// ErrDeleteWithoutUID means that a delete was not sent: it has an operation, and does not say which object it is about. An
// object of the same name that was created later would be deleted by the repetition.
var ErrDeleteWithoutUID = errors.New("a delete with an operation needs the uid of the object: give client.Preconditions, or the object as it was read")

// deletePrecondition makes a delete of an operation one of a single object.
func deletePrecondition(obj client.Object, options *client.DeleteOptions) error {
	if options.Preconditions != nil && options.Preconditions.UID != nil {
		return nil
	}
	uid := obj.GetUID()
	if uid == "" {
		return fmt.Errorf("delete %s: %w", client.ObjectKeyFromObject(obj), ErrDeleteWithoutUID)
	}
	preconditions := client.Preconditions{UID: &uid}
	if options.Preconditions != nil {
		preconditions.ResourceVersion = options.Preconditions.ResourceVersion
	}
	preconditions.ApplyToDelete(options)
	return nil
}

// gone turns the conflict of a delete into NotFound, if the object of the uid is gone.
func (d *deletion) gone(ctx context.Context, uid types.UID, err error) error {
	if !apierrors.IsConflict(err) {
		return err
	}
	current, errRead := d.client.readAnew(ctx, d.obj)
	switch {
	case apierrors.IsNotFound(errRead):
		return errRead
	case errRead == nil && current.GetUID() != uid:
		return apierrors.NewNotFound(schema.GroupResource{Group: d.gvk.Group, Resource: d.gvk.Kind}, d.obj.GetName())
	default:
		return err
	}
}
