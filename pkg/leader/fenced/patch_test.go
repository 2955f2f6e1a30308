// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

var weekly = []mark{{key: "token.fencedlease.io/one", value: "5.aaaaaaaa/1"}}

func TestStampPatch(t *testing.T) {
	const annotation = `"annotations":{"token.fencedlease.io/one":"5.aaaaaaaa/1"}`
	for name, test := range map[string]struct {
		kind types.PatchType
		data string
		want string
		err  string
	}{
		"a merge patch":                         {kind: types.MergePatchType, data: `{"spec":{"value":1.0,"big":12345678901234567890}}`, want: `{"metadata":{` + annotation + `},"spec":{"value":1.0,"big":12345678901234567890}}`},
		"a merge patch with metadata":           {kind: types.MergePatchType, data: `{"metadata":{"labels":{"a":null}}}`, want: `{"metadata":{` + annotation + `,"labels":{"a":null}}}`},
		"a merge patch with annotations":        {kind: types.MergePatchType, data: `{"metadata":{"annotations":{"a":null}}}`, want: `{"metadata":{"annotations":{"a":null,"token.fencedlease.io/one":"5.aaaaaaaa/1"}}}`},
		"a merge patch with an older token":     {kind: types.MergePatchType, data: `{"metadata":{"annotations":{"token.fencedlease.io/one":"4.zzzzzzzz"}}}`, want: `{"metadata":{` + annotation + `}}`},
		"an empty merge patch":                  {kind: types.MergePatchType, data: `{}`, want: `{"metadata":{` + annotation + `}}`},
		"a strategic merge patch":               {kind: types.StrategicMergePatchType, data: `{}`, want: `{"metadata":{` + annotation + `}}`},
		"a merge patch that drops annotations":  {kind: types.MergePatchType, data: `{"metadata":{"annotations":null}}`, err: "its annotations are no object: it is null"},
		"a merge patch that drops the metadata": {kind: types.MergePatchType, data: `{"metadata":null}`, err: "its metadata is no object: it is null"},
		"a merge patch with a list for one":     {kind: types.MergePatchType, data: `{"metadata":[]}`, err: "its metadata is no object"},
		"a merge patch that is null":            {kind: types.MergePatchType, data: `null`, err: "its data is no JSON object"},
		"a merge patch that is a list":          {kind: types.MergePatchType, data: `[]`, err: "its data is no JSON object"},
		"a merge patch that is no JSON":         {kind: types.MergePatchType, data: `{`, err: "its data is no JSON object"},
		"an apply patch in JSON":                {kind: types.ApplyYAMLPatchType, data: `{"kind":"Report"}`, want: `{"kind":"Report","metadata":{` + annotation + `}}`},
		"an apply patch in YAML":                {kind: types.ApplyYAMLPatchType, data: "kind: Report\nspec: {value: '1'}\n", want: `{"kind":"Report","metadata":{` + annotation + `},"spec":{"value":"1"}}`},
		"an apply patch that is no YAML":        {kind: types.ApplyYAMLPatchType, data: "kind: [", err: "its data is no YAML"},
		"an apply patch in CBOR":                {kind: types.ApplyCBORPatchType, data: "x", err: "a patch of type application/apply-patch+cbor cannot be read"},
		"a JSON patch":                          {kind: types.JSONPatchType, data: `[{"op":"remove","path":"/a"}]`, want: `[{"op":"remove","path":"/a"},{"op":"add","path":"/metadata/annotations/token.fencedlease.io~1one","value":"5.aaaaaaaa/1"}]`},
		"an empty JSON patch":                   {kind: types.JSONPatchType, data: `[]`, want: `[{"op":"add","path":"/metadata/annotations/token.fencedlease.io~1one","value":"5.aaaaaaaa/1"}]`},
		"a JSON patch that is no list":          {kind: types.JSONPatchType, data: `{}`, err: "its data is no JSON array"},
		"a patch of an unknown kind":            {kind: "application/x", data: `{}`, err: "a patch of type application/x cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := stampPatch(test.kind, []byte(test.data), weekly)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("want error %q, got %v", test.err, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(sorted(t, test.want), sorted(t, string(got))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// sorted returns JSON with its keys in order and its numbers as they were written.
func sorted(t *testing.T, text string) string {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestStampMergeChangesNothingButTheMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom([]string{"a", "b", "metadata", "annotations", weekly[0].key})
		annotations := rapid.MapOf(key, rapid.String()).Draw(t, "annotations")
		patch := map[string]any{}
		for k, v := range rapid.MapOf(key, rapid.Int64()).Draw(t, "fields") {
			patch[k] = float64(v % (1 << 50))
		}
		metadata := map[string]any{"labels": map[string]any{"x": nil}}
		want := map[string]any{}
		for k, v := range annotations {
			want[k] = v
		}
		metadata["annotations"] = maps.Clone(want)
		patch["metadata"] = metadata
		data, err := json.Marshal(patch)
		if err != nil {
			t.Fatal(err)
		}
		stampedData, err := stampMerge(data, weekly)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		if err := json.Unmarshal(stampedData, &got); err != nil {
			t.Fatal(err)
		}
		want[weekly[0].key] = weekly[0].value
		metadata["annotations"] = want
		if diff := cmp.Diff(patch, got); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
	})
}

func TestStampBare(t *testing.T) {
	got, err := stampBare([]byte(`[{"op":"remove","path":"/a"}]`), weekly)
	want := `[{"op":"remove","path":"/a"},{"op":"test","path":"/metadata/annotations","value":null},` +
		`{"op":"add","path":"/metadata/annotations","value":{"token.fencedlease.io/one":"5.aaaaaaaa/1"}}]`
	if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
		t.Errorf("error %v, -want +got:\n%s", err, diff)
	}
}

func TestWithMarksCopies(t *testing.T) {
	before := map[string]string{"a": "b"}
	after := withMarks(before, weekly)
	if len(before) != 1 || !slices.Equal(slices.Sorted(maps.Keys(after)), []string{"a", weekly[0].key}) {
		t.Errorf("before %v, after %v", before, after)
	}
}
