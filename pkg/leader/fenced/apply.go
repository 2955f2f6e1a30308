// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// unstructuredOf returns a copy of an apply configuration, as it would be sent.
func unstructuredOf(configuration runtime.ApplyConfiguration) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	data, err := json.Marshal(configuration)
	if err == nil {
		err = utiljson.Unmarshal(data, &u.Object)
	}
	if err != nil {
		return nil, fmt.Errorf("encode apply configuration %T: %w", configuration, err)
	}
	if u.Object == nil || u.GroupVersionKind().Empty() {
		return nil, fmt.Errorf("encode apply configuration %T: it has no apiVersion and kind", configuration)
	}
	return u, nil
}

// settleApply is settle for an apply. The caller's configuration is emptied before it takes what is stored: what that does
// not have must not stay.
func (c *fencedClient) settleApply(ctx context.Context, configuration runtime.ApplyConfiguration, named *unstructured.Unstructured, marks []mark, err error) error {
	current, err := c.replay(ctx, named, marks, err)
	if current == nil {
		return err
	}
	answer, ok := current.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("read %s: it came as %T", named.GetKind(), current)
	}
	if v := reflect.ValueOf(configuration); v.Kind() == reflect.Pointer {
		if _, ok := configuration.(runtime.Unstructured); !ok {
			v.Elem().SetZero()
		}
	}
	return takeAnswer(configuration, answer)
}

// takeAnswer puts the server's answer into the caller's apply configuration, as a client does.
func takeAnswer(configuration runtime.ApplyConfiguration, answer *unstructured.Unstructured) error {
	if u, ok := configuration.(runtime.Unstructured); ok {
		u.SetUnstructuredContent(answer.Object)
		return nil
	}
	data, err := answer.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(data, configuration)
	}
	if err != nil {
		return fmt.Errorf("decode the answer into apply configuration %T: %w", configuration, err)
	}
	return nil
}
