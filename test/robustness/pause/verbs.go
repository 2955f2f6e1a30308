// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/test/env"
)

// Values that the stored objects show, by who wrote them.
const (
	first = "first"
	ofA   = "of A"
	ofB   = "of B"

	replicasFirst, replicasOfA = 1, 3

	fieldOwner = client.FieldOwner("a")
	nameLabel  = "name"
)

// kind is what a verb writes.
type kind int

const (
	writesNew kind = iota
	writesMain
	writesStatus
	writesScale
	deletes
	marksDeleted
)

// Verb is one way to write a Report.
type Verb struct {
	Name string
	kind kind
	// conditioned says that the write names the resourceVersion that A read before the pause.
	conditioned bool
	// applies says that a create turns into an update where the object exists.
	applies bool
	prepare func(ctx context.Context, w *writer) (send func(context.Context) error, err error)
}

func (v *Verb) creates() bool { return v.kind == writesNew }

func (v *Verb) removes() bool { return v.kind == deletes || v.kind == marksDeleted }

// writer is A with the object of a cell.
type writer struct {
	client client.Client
	object *unstructured.Unstructured
	// key and annotation are the token to present by annotation; annotation is empty for none.
	key, annotation string
}

// Verbs returns all ways to write a custom resource.
func Verbs() []*Verb {
	return []*Verb{
		{Name: "create", kind: writesNew, prepare: direct(func(ctx context.Context, w *writer) error {
			return w.client.Create(ctx, w.content("spec", "value"))
		})},
		{Name: "apply that creates", kind: writesNew, applies: true, prepare: direct(apply)},
		{Name: "PUT", kind: writesMain, conditioned: true, prepare: func(ctx context.Context, w *writer) (func(context.Context) error, error) {
			o := w.object.DeepCopy()
			if err := w.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return nil, err
			}
			w.annotate(o)
			if err := unstructured.SetNestedField(o.Object, ofA, "spec", "value"); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return w.client.Update(ctx, o) }, nil
		}},
		{Name: "JSON patch", kind: writesMain, prepare: direct(func(ctx context.Context, w *writer) error {
			return w.client.Patch(ctx, w.target(), w.jsonPatch("/spec/value"))
		})},
		{Name: "merge patch", kind: writesMain, prepare: direct(func(ctx context.Context, w *writer) error {
			return w.client.Patch(ctx, w.target(), w.mergePatch("spec", "value"))
		})},
		{Name: "apply", kind: writesMain, prepare: direct(apply)},
		{Name: "status PUT", kind: writesStatus, conditioned: true, prepare: func(ctx context.Context, w *writer) (func(context.Context) error, error) {
			o := w.object.DeepCopy()
			if err := w.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return nil, err
			}
			w.annotate(o)
			if err := unstructured.SetNestedField(o.Object, ofA, "status", "phase"); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return w.client.Status().Update(ctx, o) }, nil
		}},
		{Name: "status JSON patch", kind: writesStatus, prepare: direct(func(ctx context.Context, w *writer) error {
			return w.client.Status().Patch(ctx, w.target(), w.jsonPatch("/status"))
		})},
		{Name: "status merge patch", kind: writesStatus, prepare: direct(func(ctx context.Context, w *writer) error {
			return w.client.Status().Patch(ctx, w.target(), w.mergePatch("status", "phase"))
		})},
		{Name: "status apply", kind: writesStatus, prepare: direct(func(ctx context.Context, w *writer) error {
			return w.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(w.content("status", "phase")), fieldOwner, client.ForceOwnership)
		})},
		{Name: "scale PUT", kind: writesScale, conditioned: true, prepare: func(ctx context.Context, w *writer) (func(context.Context) error, error) {
			scale := &unstructured.Unstructured{}
			scale.SetAPIVersion("autoscaling/v1")
			scale.SetKind("Scale")
			if err := w.client.SubResource("scale").Get(ctx, w.object, scale); err != nil {
				return nil, err
			}
			if err := unstructured.SetNestedField(scale.Object, int64(replicasOfA), "spec", "replicas"); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error {
				return w.client.SubResource("scale").Update(ctx, w.target(), client.WithSubResourceBody(scale))
			}, nil
		}},
		{Name: "scale merge patch", kind: writesScale, prepare: direct(func(ctx context.Context, w *writer) error {
			patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicasOfA)
			return w.client.SubResource("scale").Patch(ctx, w.target(), client.RawPatch(types.MergePatchType, patch))
		})},
		{Name: "delete", kind: deletes, prepare: direct(func(ctx context.Context, w *writer) error {
			return w.client.Delete(ctx, w.target())
		})},
		{Name: "delete in the foreground", kind: marksDeleted, prepare: direct(func(ctx context.Context, w *writer) error {
			return w.client.Delete(ctx, w.target(), client.PropagationPolicy("Foreground"))
		})},
		{Name: "deletecollection", kind: deletes, prepare: direct(func(ctx context.Context, w *writer) error {
			o := w.target()
			return w.client.DeleteAllOf(ctx, o, client.InNamespace(o.GetNamespace()), client.MatchingLabels{nameLabel: o.GetName()})
		})},
	}
}

// direct makes a verb of a write that reads nothing before.
func direct(send func(context.Context, *writer) error) func(context.Context, *writer) (func(context.Context) error, error) {
	return func(_ context.Context, w *writer) (func(context.Context) error, error) {
		return func(ctx context.Context) error { return send(ctx, w) }, nil
	}
}

func apply(ctx context.Context, w *writer) error {
	return w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(w.content("spec", "value")), fieldOwner, client.ForceOwnership)
}

// target is the object by its name only.
func (w *writer) target() *unstructured.Unstructured {
	return env.BareReport(w.object.GetNamespace(), w.object.GetName())
}

// content is the object with one field of A's, and its token.
func (w *writer) content(path ...string) *unstructured.Unstructured {
	o := w.target()
	w.annotate(o)
	o.Object[path[0]] = map[string]any{path[1]: ofA}
	return o
}

func (w *writer) annotate(o *unstructured.Unstructured) {
	if w.annotation != "" {
		annotate(o, w.key, w.annotation)
	}
}

func (w *writer) mergePatch(section, field string) client.Patch {
	metadata := ""
	if w.annotation != "" {
		metadata = fmt.Sprintf(`"metadata":{"annotations":{%q:%q}},`, w.key, w.annotation)
	}
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{%s%q:{%q:%q}}`, metadata, section, field, ofA))
}

func (w *writer) jsonPatch(path string) client.Patch {
	value := fmt.Sprintf("%q", ofA)
	if path == "/status" {
		value = fmt.Sprintf(`{"phase":%q}`, ofA)
	}
	annotation := ""
	if w.annotation != "" {
		annotation = fmt.Sprintf(`,{"op":"add","path":"/metadata/annotations/%s","value":%q}`, strings.ReplaceAll(w.key, "/", "~1"), w.annotation)
	}
	return client.RawPatch(types.JSONPatchType, fmt.Appendf(nil, `[{"op":"add","path":%q,"value":%s}%s]`, path, value, annotation))
}

func annotate(o *unstructured.Unstructured, key, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	o.SetAnnotations(annotations)
}
