// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkReview measures one review of an update from the request's body to the answer's, without network and reads.
func BenchmarkReview(b *testing.B) {
	handler := serve(held())
	owned := meta("managedFields", []any{map[string]any{
		"manager": "worker", "operation": "Update", "apiVersion": "example.com/v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
		"fieldsV1": map[string]any{
			"f:metadata": map[string]any{"f:annotations": map[string]any{".": map[string]any{}, "f:" + key: map[string]any{}}},
			"f:spec":     map[string]any{".": map[string]any{}, "f:value": map[string]any{}},
		},
	}})
	body := ask{old: report(current, owned), new: report("34.bbbbbbbb/2", value("y"), owned)}.review(b)
	b.ReportAllocs()
	for b.Loop() {
		request := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/fence/1?timeout=5s", bytes.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusOK || !bytes.Contains(recorder.Body.Bytes(), []byte(`"allowed":true`)) {
			b.Fatalf("answer %d: %s", recorder.Code, recorder.Body)
		}
	}
}
