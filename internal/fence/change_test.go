// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/internal/fence"
)

func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("decode %s: %v", text, err)
	}
	return object
}

func TestCompareObjects(t *testing.T) {
	t.Parallel()
	const base = `{"apiVersion":"example.com/v1","kind":"Report","metadata":{"name":"r","uid":"u","resourceVersion":"7",
		"generation":3,"labels":{"a":"b"},"annotations":{"token.fencedlease.io/report-writer":"34.bbbbbbbb/1"},
		"ownerReferences":[{"uid":"o1"},{"uid":"o2"}],"finalizers":["x","orphan"],"managedFields":[{"manager":"m"}]},
		"spec":{"size":1,"list":[1,2]},"status":{"phase":"Done"}}`
	// Each case sets a path of the object to a value, or removes what is there.
	type change struct {
		path  []string
		value any
	}
	for name, tc := range map[string]struct {
		changes []change
		want    fence.Change
	}{
		"nothing":                         {nil, fence.ChangeNothing},
		"managed fields":                  {[]change{{[]string{"metadata", "managedFields"}, []any{}}}, fence.ChangeNothing},
		"managed fields removed":          {[]change{{[]string{"metadata", "managedFields"}, nil}}, fence.ChangeNothing},
		"the resourceVersion":             {[]change{{[]string{"metadata", "resourceVersion"}, "8"}}, fence.ChangeNothing},
		"an owner reference removed":      {[]change{{[]string{"metadata", "ownerReferences"}, []any{map[string]any{"uid": "o1"}}}}, fence.ChangeOwnership},
		"all owner references removed":    {[]change{{[]string{"metadata", "ownerReferences"}, nil}}, fence.ChangeOwnership},
		"the last finalizers removed":     {[]change{{[]string{"metadata", "finalizers"}, nil}}, fence.ChangeOwnership},
		"finalizers in another order":     {[]change{{[]string{"metadata", "finalizers"}, []any{"orphan", "x"}}}, fence.ChangeOwnership},
		"owners and finalizers":           {[]change{{[]string{"metadata", "ownerReferences"}, nil}, {[]string{"metadata", "finalizers"}, nil}}, fence.ChangeOwnership},
		"owners and managed fields":       {[]change{{[]string{"metadata", "ownerReferences"}, nil}, {[]string{"metadata", "managedFields"}, nil}}, fence.ChangeOwnership},
		"a label":                         {[]change{{[]string{"metadata", "labels", "a"}, "c"}}, fence.ChangeOther},
		"the mark":                        {[]change{{[]string{"metadata", "annotations", tokenKey}, "34.bbbbbbbb/2"}}, fence.ChangeOther},
		"the mark removed":                {[]change{{[]string{"metadata", "annotations", tokenKey}, nil}}, fence.ChangeOther},
		"another annotation":              {[]change{{[]string{"metadata", "annotations", "note"}, "n"}}, fence.ChangeOther},
		"the deletion time":               {[]change{{[]string{"metadata", "deletionTimestamp"}, "2026-01-01T00:00:00Z"}}, fence.ChangeOther},
		"the uid":                         {[]change{{[]string{"metadata", "uid"}, "v"}}, fence.ChangeOther},
		"the name":                        {[]change{{[]string{"metadata", "name"}, "s"}}, fence.ChangeOther},
		"the generation":                  {[]change{{[]string{"metadata", "generation"}, 4.0}}, fence.ChangeOther},
		"the spec":                        {[]change{{[]string{"spec", "size"}, 2.0}}, fence.ChangeOther},
		"the spec's list in other order":  {[]change{{[]string{"spec", "list"}, []any{2.0, 1.0}}}, fence.ChangeOther},
		"the spec removed":                {[]change{{[]string{"spec"}, nil}}, fence.ChangeOther},
		"the status":                      {[]change{{[]string{"status", "phase"}, "Failed"}}, fence.ChangeOther},
		"the version":                     {[]change{{[]string{"apiVersion"}, "example.com/v2"}}, fence.ChangeOther},
		"a new top-level field":           {[]change{{[]string{"extra"}, true}}, fence.ChangeOther},
		"a finalizer and the spec":        {[]change{{[]string{"metadata", "finalizers"}, nil}, {[]string{"spec", "size"}, 2.0}}, fence.ChangeOther},
		"a finalizer and the mark":        {[]change{{[]string{"metadata", "finalizers"}, nil}, {[]string{"metadata", "annotations", tokenKey}, nil}}, fence.ChangeOther},
		"managed fields and the spec":     {[]change{{[]string{"metadata", "managedFields"}, nil}, {[]string{"spec", "size"}, 2.0}}, fence.ChangeOther},
		"a number that became a text":     {[]change{{[]string{"spec", "size"}, "1"}}, fence.ChangeOther},
		"metadata removed":                {[]change{{[]string{"metadata"}, nil}}, fence.ChangeOther},
		"metadata that is not an object":  {[]change{{[]string{"metadata"}, "x"}}, fence.ChangeOther},
		"a field of spec named as owners": {[]change{{[]string{"spec", "ownerReferences"}, []any{}}}, fence.ChangeOther},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := decoded(t, base), decoded(t, base)
			for _, c := range tc.changes {
				set(t, after, c.path, c.value)
			}
			checkCompare(t, before, after, tc.want)
		})
	}
}

func TestCompareObjectsThatAreNotObjects(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before, after string
		want          fence.Change
	}{
		"no objects at all":                   {`null`, `null`, fence.ChangeOther},
		"no old object":                       {`null`, `{"metadata":{}}`, fence.ChangeOther},
		"empty objects have no metadata":      {`{}`, `{}`, fence.ChangeOther},
		"metadata is a text in both":          {`{"metadata":"a"}`, `{"metadata":"b"}`, fence.ChangeOther},
		"metadata is a list and a number":     {`{"metadata":[1]}`, `{"metadata":2}`, fence.ChangeOther},
		"metadata is empty in both":           {`{"metadata":{}}`, `{"metadata":{}}`, fence.ChangeNothing},
		"managed fields alone in the old one": {`{"metadata":{"managedFields":[]}}`, `{"metadata":{}}`, fence.ChangeNothing},
		"no finalizers, and an empty list":    {`{"metadata":{}}`, `{"metadata":{"finalizers":[]}}`, fence.ChangeOwnership},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkCompare(t, decoded(t, tc.before), decoded(t, tc.after), tc.want)
		})
	}
}

func checkCompare(t *testing.T, before, after map[string]any, want fence.Change) {
	t.Helper()
	beforeCopy, afterCopy := deepCopy(t, before), deepCopy(t, after)
	if got := fence.CompareObjects(before, after); got != want {
		t.Errorf("change %d, want %d", got, want)
	}
	if got := fence.CompareObjects(after, before); got != want {
		t.Errorf("change %d when seen from the other side, want %d", got, want)
	}
	if diff := cmp.Diff(beforeCopy, before); diff != "" {
		t.Errorf("the old object was changed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(afterCopy, after); diff != "" {
		t.Errorf("the new object was changed (-want +got):\n%s", diff)
	}
}

func deepCopy(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return decoded(t, string(text))
}

func set(t *testing.T, object map[string]any, path []string, value any) {
	t.Helper()
	for _, step := range path[:len(path)-1] {
		inner, ok := object[step].(map[string]any)
		if !ok {
			t.Fatalf("no object at %v", path)
		}
		object = inner
	}
	if value == nil {
		delete(object, path[len(path)-1])
		return
	}
	object[path[len(path)-1]] = value
}

func FuzzCompareObjects(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"metadata":{"name":"a"},"spec":{"x":1}}`, `{"metadata":{"name":"a","finalizers":["f"]},"spec":{"x":1}}`},
		{`{"metadata":{"managedFields":[{}]}}`, `{"metadata":{"resourceVersion":"2"}}`},
		{`{"metadata":{"annotations":{"token.fencedlease.io/report-writer":"34"}}}`, `{"metadata":{"ownerReferences":[]}}`},
		{`{"metadata":"a"}`, `{"metadata":1}`},
		{`null`, `{}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, beforeText, afterText string) {
		var before, after map[string]any
		if json.Unmarshal([]byte(beforeText), &before) != nil || json.Unmarshal([]byte(afterText), &after) != nil {
			return
		}
		checkCompare(t, before, after, changeByText(t, before, after))
		if want, _ := before["metadata"].(map[string]any); want != nil {
			checkCompare(t, before, deepCopy(t, before), fence.ChangeNothing)
		}
	})
}

// changeByText compares what is left as JSON text after the fields that do not count were taken out.
func changeByText(t *testing.T, before, after map[string]any) fence.Change {
	t.Helper()
	reduced := func(object map[string]any, without ...string) string {
		object = deepCopy(t, object)
		meta, ok := object["metadata"].(map[string]any)
		if !ok {
			return ""
		}
		maps.DeleteFunc(meta, func(key string, _ any) bool {
			for _, w := range without {
				if key == w {
					return true
				}
			}
			return false
		})
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	same := func(without ...string) bool {
		b, a := reduced(before, without...), reduced(after, without...)
		return b != "" && a == b
	}
	switch {
	case same("managedFields", "resourceVersion"):
		return fence.ChangeNothing
	case same("managedFields", "resourceVersion", "ownerReferences", "finalizers"):
		return fence.ChangeOwnership
	default:
		return fence.ChangeOther
	}
}
