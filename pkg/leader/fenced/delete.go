// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deleteAttempts bounds how often a delete begins anew because others write the object.
const deleteAttempts = 5

// Delete asks for the deletion in the object's mark, and deletes the object as that stands. The caller's object stays as it
// is.
func (c *fencedClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return c.deleteGuarded(c.presenting(ctx), obj, opts, (*deletion).run)
}

// deleteGuarded deletes a guarded object in a way of its own, and every other as it is. With an operation that is the one
// object of a uid, which is not found once it is gone.
func (c *fencedClient) deleteGuarded(ctx context.Context, obj client.Object, opts []client.DeleteOption, send func(*deletion, context.Context) error) error {
	gvk, err := c.inner.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	guarding, err := c.guarding(gvk, obj.GetNamespace(), subresourceMain)
	if err != nil {
		return err
	}
	if len(guarding) == 0 {
		return c.inner.Delete(ctx, obj, opts...)
	}
	d := &deletion{client: c, obj: obj, gvk: gvk, guarding: guarding}
	d.options.ApplyOptions(opts)
	d.options.Preconditions = d.options.Preconditions.DeepCopy()
	if !operates(ctx, guarding) {
		return send(d, ctx)
	}
	if err := deletePrecondition(obj, &d.options); err != nil {
		return err
	}
	return d.gone(ctx, *d.options.Preconditions.UID, send(d, ctx))
}

// deletion is one call of Delete.
type deletion struct {
	client   *fencedClient
	obj      client.Object
	gvk      schema.GroupVersionKind
	guarding []*stamper
	options  client.DeleteOptions
}

func (d *deletion) run(ctx context.Context) error {
	intent, err := marksOf(d.guarding, (*stamper).deleteIntent)
	if err != nil {
		return err
	}
	intended := carries(d.obj, intent)
	for range deleteAttempts {
		if !intended {
			var stored client.Object
			stored, err = d.stamp(ctx, intent)
			switch {
			case err == nil && len(d.options.DryRun) > 0:
				return nil
			case err == nil:
				err = d.delete(ctx, preconditionsOf(stored))
				if !d.begunAnew(err) {
					return err
				}
				continue
			case !missing(err):
				return err
			}
		}
		// The mark asks for the deletion already, of all leases or of some: an annotation that stays as it is stored
		// presents no token. Then nothing needs to be written.
		intended = false
		if err = d.once(ctx); !missing(err) {
			return err
		}
		fresh, errMarks := marksOf(d.guarding, (*stamper).next)
		if errMarks != nil {
			return errMarks
		}
		stored, errStamp := d.stamp(ctx, fresh)
		if errStamp != nil || len(d.options.DryRun) > 0 {
			return errStamp
		}
		if d.versioned() {
			d.options.Preconditions.ResourceVersion = preconditionsOf(stored).ResourceVersion
		}
	}
	return fmt.Errorf("delete %s %s, which others keep writing: %w", d.gvk.Kind, client.ObjectKeyFromObject(d.obj), err)
}

// carries reports whether an object, as the caller read it, has all marks.
func carries(obj client.Object, marks []mark) bool {
	annotations := obj.GetAnnotations()
	for _, m := range marks {
		if annotations[m.key] != m.value {
			return false
		}
	}
	return true
}

// missing reports whether the fence refused a write as it presents no token.
func missing(err error) bool {
	refusal, ok := Cause(err)
	return ok && refusal.Type == MissingToken
}

// begunAnew reports whether a delete was refused only as somebody wrote the object after its mark was stamped.
func (d *deletion) begunAnew(err error) bool {
	return !d.versioned() && (missing(err) || apierrors.IsConflict(err))
}

// versioned reports whether the caller wants the object deleted in one version only.
func (d *deletion) versioned() bool {
	return d.options.Preconditions != nil && d.options.Preconditions.ResourceVersion != nil
}

// stamp writes marks into the object, on the caller's conditions, and returns it as it is stored then.
func (d *deletion) stamp(ctx context.Context, marks []mark) (client.Object, error) {
	if err := d.client.checkHeld(); err != nil {
		return nil, err
	}
	metadata := map[string]any{"annotations": withMarks(nil, marks)}
	preconditions := d.options.Preconditions
	if preconditions != nil && preconditions.ResourceVersion != nil {
		metadata["resourceVersion"] = *preconditions.ResourceVersion
	}
	if preconditions != nil && preconditions.UID != nil {
		metadata["uid"] = *preconditions.UID
	}
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, fmt.Errorf("encode mark: %w", err)
	}
	stored, ok := d.obj.DeepCopyObject().(client.Object)
	if !ok {
		return nil, fmt.Errorf("copy %T: the copy is no object", d.obj)
	}
	patchOptions := &client.PatchOptions{DryRun: d.options.DryRun}
	err = d.client.inner.Patch(ctx, stored, client.RawPatch(types.MergePatchType, data), patchOptions)
	if preconditions != nil && preconditions.UID != nil && blames(err, "metadata.uid") {
		// A uid cannot be changed: the object is another one. A delete would answer a conflict.
		return nil, apierrors.NewConflict(schema.GroupResource{Group: d.gvk.Group, Resource: d.gvk.Kind}, d.obj.GetName(), err)
	}
	return stored, err
}

// blames reports whether an API server refused a field.
func blames(err error, field string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == field })
}

func preconditionsOf(stored client.Object) *metav1.Preconditions {
	uid, version := stored.GetUID(), stored.GetResourceVersion()
	return &metav1.Preconditions{UID: &uid, ResourceVersion: &version}
}

// once deletes the object as the caller wants it.
func (d *deletion) once(ctx context.Context) error { return d.delete(ctx, d.options.Preconditions) }

// delete deletes the object on conditions, with what else the caller wants.
func (d *deletion) delete(ctx context.Context, preconditions *metav1.Preconditions) error {
	if err := d.client.checkHeld(); err != nil {
		return err
	}
	options := d.options
	options.Preconditions = preconditions
	options.Raw = d.options.Raw.DeepCopy()
	return d.client.inner.Delete(ctx, d.obj, &options)
}
