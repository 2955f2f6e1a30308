// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package comparison_test

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/test/env"
)

const (
	early = "of the first leader"
	later = "of the successor"
	late  = "late"
)

// failure is a late write.
type failure struct {
	name  string
	write write
}

// write is one late write to the object of its own that a failure has. The object is as the leader read it before it was
// paused.
type write struct {
	// absent says that the object does not exist before.
	absent bool
	// successor says that the successor writes the object before the late write arrives.
	successor bool
	send      func(ctx context.Context, w *worker, object *unstructured.Unstructured) error
	// landed tells from the stored object, nil if there is none, whether the late write has taken effect.
	landed func(object *unstructured.Unstructured) bool
}

var (
	updateAfter  = write{successor: true, send: update, landed: hasValue("spec", "value")}
	updateBefore = write{send: update, landed: hasValue("spec", "value")}
	createNew    = write{absent: true, landed: exists, send: func(ctx context.Context, w *worker, o *unstructured.Unstructured) error {
		w.mark(o)
		return w.client.Create(ctx, o)
	}}
	retryOnConflict = write{successor: true, landed: hasValue("spec", "value"), send: func(ctx context.Context, w *worker, o *unstructured.Unstructured) error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			o := o // the first try is of what was read before the pause
			set(o, late, "spec", "value")
			w.mark(o)
			err := w.client.Update(ctx, o)
			if err != nil {
				_ = w.client.Get(ctx, client.ObjectKeyFromObject(o), o)
			}
			return err
		})
	}}
	plainPatch = write{successor: true, landed: hasValue("spec", "value"), send: func(ctx context.Context, w *worker, o *unstructured.Unstructured) error {
		body := `{"spec":{"value":"` + late + `"}}`
		return w.client.Patch(ctx, o, client.RawPatch(mergePatch, []byte(body)))
	}}
	statusAfter = write{successor: true, landed: hasValue("status", "result"), send: func(ctx context.Context, w *worker, o *unstructured.Unstructured) error {
		before := o.DeepCopy()
		set(o, late, "status", "result")
		w.mark(o)
		return w.client.Status().Patch(ctx, o, w.patchFrom(before))
	}}
	deleteAfter = write{successor: true, landed: isGone, send: func(ctx context.Context, w *worker, o *unstructured.Unstructured) error {
		if w.way.conditioned {
			return w.client.Delete(ctx, o, client.Preconditions{UID: ptr.To(o.GetUID()), ResourceVersion: ptr.To(o.GetResourceVersion())})
		}
		return w.client.Delete(ctx, o)
	}}
)

// update changes the object as the way says: conditioned on what was read, or not.
func update(ctx context.Context, w *worker, o *unstructured.Unstructured) error {
	before := o.DeepCopy()
	set(o, late, "spec", "value")
	w.mark(o)
	return w.client.Patch(ctx, o, w.patchFrom(before))
}

// patchFrom makes a patch that says the candidate's mark, also where the object that was read has it already.
func (w *worker) patchFrom(before *unstructured.Unstructured) client.Patch {
	unstructured.RemoveNestedField(before.Object, "metadata", "annotations", policyAnnotation)
	if w.way.conditioned {
		return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	return client.MergeFrom(before)
}

// mark annotates what a candidate writes, where the way has marks.
func (w *worker) mark(o *unstructured.Unstructured) {
	if w.way.marks == nil {
		return
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	for k, v := range w.way.marks(w) {
		annotations[k] = v
	}
	o.SetAnnotations(annotations)
}

func set(o *unstructured.Unstructured, value string, path ...string) {
	// The objects hold maps at these places, or nothing.
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		panic(err)
	}
}

func hasValue(path ...string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		value, _, err := unstructured.NestedString(o.Object, path...)
		return err == nil && value == late
	}
}

func exists(o *unstructured.Unstructured) bool { return o != nil }
func isGone(o *unstructured.Unstructured) bool { return o == nil }

func report(namespace, name string) *unstructured.Unstructured {
	return env.NewReport(namespace, name, early)
}
