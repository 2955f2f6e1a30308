// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// patch sends a patch together with marks. from is what the patch takes its data from.
func (c *fencedClient) patch(from client.Object, patch client.Patch, marks []mark, subresource string, send func(client.Patch) error) error {
	if len(marks) == 0 {
		return send(patch)
	}
	data, err := patch.Data(from)
	if err != nil {
		return err
	}
	stampedData, err := stampPatch(patch.Type(), data, marks)
	if err != nil {
		return c.refusePatch(from, subresource, marks[0], err)
	}
	err = send(client.RawPatch(patch.Type(), stampedData))
	if patch.Type() != types.JSONPatchType || !notApplicable(err) {
		return err
	}
	// A JSON patch cannot say "add the map if there is none". The one before has changed nothing, for a reason that the
	// server does not tell; this one passes only if there is no map.
	if errEnded := c.checkHeld(); errEnded != nil {
		return errEnded
	}
	if stampedData, err = stampBare(data, marks); err != nil {
		return c.refusePatch(from, subresource, marks[0], err)
	}
	return send(client.RawPatch(patch.Type(), stampedData))
}

func (c *fencedClient) refusePatch(from client.Object, subresource string, m mark, problem error) error {
	gvk, err := c.inner.GroupVersionKindFor(from)
	if err != nil {
		return err
	}
	return &CannotStampError{Lease: m.lease, Write: describe("patch", gvk, subresource), Reason: problem.Error()}
}

// stampPatch adds marks to a patch.
func stampPatch(kind types.PatchType, data []byte, marks []mark) ([]byte, error) {
	switch kind {
	case types.MergePatchType, types.StrategicMergePatchType:
		return stampMerge(data, marks)
	case types.ApplyYAMLPatchType:
		data, err := yaml.YAMLToJSON(data)
		if err != nil {
			return nil, fmt.Errorf("its data is no YAML: %w", err)
		}
		return stampMerge(data, marks)
	case types.JSONPatchType:
		operations := make([]jsonOperation, 0, len(marks))
		for _, m := range marks {
			operations = append(operations, jsonOperation{Op: "add", Path: pathOf(m), Value: m.value})
		}
		return appendOperations(data, operations)
	default:
		return nil, fmt.Errorf("a patch of type %s cannot be read", kind)
	}
}

// stampMerge sets the annotations in a patch that is an object, and leaves everything else as it is, byte by byte.
func stampMerge(data []byte, marks []mark) ([]byte, error) {
	root, err := decodeObject(data)
	if err != nil {
		return nil, fmt.Errorf("its data is no JSON object: %w", err)
	}
	metadata, err := decodeObject(root["metadata"])
	if err != nil {
		return nil, fmt.Errorf("its metadata is no object: %w", err)
	}
	annotations, err := decodeObject(metadata["annotations"])
	if err != nil {
		return nil, fmt.Errorf("its annotations are no object: %w", err)
	}
	for _, m := range marks {
		if annotations[m.key], err = json.Marshal(m.value); err != nil {
			return nil, err
		}
	}
	if metadata["annotations"], err = json.Marshal(annotations); err != nil {
		return nil, err
	}
	if root["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(root)
}

// decodeObject reads one level of a JSON object; nothing at all is an empty one. A null is none: in a merge patch it
// removes what is there, and the mark with it.
func decodeObject(data json.RawMessage) (map[string]json.RawMessage, error) {
	object := map[string]json.RawMessage{}
	if len(data) == 0 {
		return object, nil
	}
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, errors.New("it is null")
	}
	return object, nil
}

// jsonOperation is one operation of a JSON patch.
type jsonOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

const annotationsPath = "/metadata/annotations"

// pathOf returns the JSON pointer of a mark.
func pathOf(m mark) string {
	return annotationsPath + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(m.key)
}

// stampBare adds marks to a JSON patch for an object without annotations, and makes it fail for any other.
func stampBare(data []byte, marks []mark) ([]byte, error) {
	return appendOperations(data, []jsonOperation{
		{Op: "test", Path: annotationsPath, Value: nil},
		{Op: "add", Path: annotationsPath, Value: withMarks(nil, marks)},
	})
}

// appendOperations puts operations behind those of a JSON patch, so that they hold whatever it does to annotations.
func appendOperations(data []byte, operations []jsonOperation) ([]byte, error) {
	var patch []json.RawMessage
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, fmt.Errorf("its data is no JSON array: %w", err)
	}
	for _, o := range operations {
		raw, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		patch = append(patch, raw)
	}
	return json.Marshal(patch)
}

// notApplicable reports whether an API server could not apply an operation of a JSON patch to the object as it is stored.
// It does not say which: a status that blames no field is all there is.
func notApplicable(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Kind == "" && len(details.Causes) == 0
}
