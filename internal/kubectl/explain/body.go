// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/send"
	"github.com/fencedlease/fencedlease/internal/kubectl/target"
)

// writeOf returns the write that is asked about. Stored is the object as it is, or nil.
func (o *Options) writeOf(t target.Target, stored *unstructured.Unstructured) (send.Write, error) {
	w := send.Write{
		Verb: send.Verb(o.Verb), Object: t.Object, FieldManager: o.FieldManager, Force: o.ForceConflicts, DryRun: cli.DryRunServer,
		PatchType: types.MergePatchType,
	}
	switch o.Verb {
	case string(send.Update):
		w.Object = updated(t, stored)
		return w, nil
	case string(send.Patch):
		return w, o.patchOf(&w, t, func(object map[string]any) map[string]any { return object })
	case verbStatus:
		w.Verb, w.Subresource = send.Patch, send.SubresourceStatus
		return w, o.patchOf(&w, t, func(object map[string]any) map[string]any {
			return map[string]any{"status": object["status"]}
		})
	case verbScale:
		w.Verb, w.Subresource = send.Patch, send.SubresourceScale
		w.Patch = []byte("{}")
		if o.Replicas != noReplicas {
			w.Patch = fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, o.Replicas)
		}
		return w, nil
	default:
		return w, nil
	}
}

// updated is the object of an update: that of the file, based on the stored version unless it names one, or the stored one.
func updated(t target.Target, stored *unstructured.Unstructured) *unstructured.Unstructured {
	switch {
	case stored == nil:
		return t.Object
	case !t.FromFile:
		return stored
	}
	object := t.Object.DeepCopy()
	if object.GetResourceVersion() == "" {
		object.SetResourceVersion(stored.GetResourceVersion())
	}
	return object
}

// patchOf fills in the body of a patch: that of --patch, or what part takes of the object of a file, or one that changes
// nothing.
func (o *Options) patchOf(w *send.Write, t target.Target, part func(map[string]any) map[string]any) (err error) {
	switch {
	case o.Patch != "":
		if o.PatchType == "json" {
			w.PatchType = types.JSONPatchType
		}
		if w.Patch, err = yaml.YAMLToJSON([]byte(o.Patch)); err != nil {
			return cli.Usagef("the patch is neither JSON nor YAML: %v", err)
		}
	case t.FromFile:
		if w.Patch, err = json.Marshal(part(t.Object.Object)); err != nil {
			return fmt.Errorf("encode patch: %w", err)
		}
	default:
		w.Patch = []byte("{}")
	}
	return nil
}
