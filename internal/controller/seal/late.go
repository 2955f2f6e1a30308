// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/pkg/token"
)

// createdLate deals with an object that was created after the list of the seal, under an older generation: its create was
// admitted before the current term began.
func (s *session) createdLate(ctx context.Context, t Target, object *metav1.PartialObjectMetadata) {
	deleted, err := false, error(nil)
	if s.order.DeleteLate {
		deleted, err = s.remove(ctx, t, object)
	}
	if !deleted {
		if failed := s.stampPlainly(ctx, t, object); failed != nil {
			s.fail(failed)
		}
	}
	if ctx.Err() != nil {
		// The next session of the term, if there is one, finds the object with its list.
		return
	}
	name := describe(t, object) + " with the mark " + s.mark(object)
	s.mu.Lock()
	s.late = Late{Count: s.late.Count + 1, Last: name, Deleted: deleted}
	s.mu.Unlock()
	s.sealer.options.Metrics.late(deleted)
	s.sealer.options.Created(s.order, name, deleted, err)
	s.sealer.options.Wake(ctx, s.order.Lease)
}

// remove deletes an object by the intent to delete: the mark says it, and the delete is conditioned on the version that
// carries it. An object that somebody has taken over under the current term is left alone.
func (s *session) remove(ctx context.Context, t Target, object *metav1.PartialObjectMetadata) (deleted bool, err error) {
	intent, err := s.order.Token.WithOperation(token.OperationDelete)
	if err != nil {
		return false, fmt.Errorf("intend to delete %s: %w", describe(t, object), err)
	}
	objects := t.in(s.sealer.options.Objects, object.Namespace)
	marked, err := s.stamp(ctx, t, object, intent)
	for range attempts {
		switch {
		case errors.Is(err, errGone):
			return true, nil
		case err != nil:
			return false, err
		case s.mark(marked) != intent.String():
			return false, nil
		}
		err = objects.Delete(ctx, marked.Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &marked.UID, ResourceVersion: &marked.ResourceVersion},
			PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
		})
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return true, nil
		case !apierrors.IsConflict(err):
			return false, s.explained(err, "delete", t.Resource.GroupResource())
		}
		// From the API server: a write of the status moves the version and keeps the intent.
		uid := marked.UID
		marked, err = objects.Get(ctx, object.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && marked.UID != uid {
			return true, nil
		}
	}
	return false, fmt.Errorf("delete %s: it changed %d times in between", describe(t, object), attempts)
}
