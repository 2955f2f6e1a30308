// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"encoding/json"
	"errors"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fencedlease/fencedlease/internal/fence"
)

func handlerOf(w *world) *Handler {
	return NewHandler(Options{
		Leases: w, Namespaces: w, Objects: w, Permissions: w, Observer: w,
		Metrics: NewMetrics(), Clock: &clocktesting.FakePassiveClock{}, System: fence.DefaultSystemWriters(),
	})
}

// FuzzDecode reviews any bytes, by a lease under which no write is current: it is released. Whatever they are, nothing
// panics and nothing is admitted: as a whole review, where guards cannot be looked up, and as the objects of a review of a
// guarded write.
func FuzzDecode(f *testing.F) {
	for _, seed := range []struct{ body, before, after string }{
		{"", "", ""},
		{"null", "null", "null"},
		{"{}", "{}", "{}"},
		{`{"request":{"uid":"1","resource":{"resource":"reports"}}}`, `{"metadata":null}`, `{"metadata":{"annotations":null}}`},
		{
			`{"request":{"uid":"1","resource":{"group":"example.com","version":"v1","resource":"reports"},"operation":"UPDATE",` +
				`"userInfo":{"username":"system:kube-controller-manager"},"oldObject":{"metadata":{}},"object":{"metadata":{}}}}`,
			`{"metadata":{"annotations":{"token.fencedlease.io/report-writer":"34.bbbbbbbb/1"},"resourceVersion":"7"}}`,
			`{"metadata":{"annotations":{"token.fencedlease.io/report-writer":"34.bbbbbbbb/2"},"labels":{"a":"b"}}}`,
		},
		{`[`, `{"metadata":{"annotations":{"token.fencedlease.io/report-writer":1}}}`, `{"metadata":{"deletionTimestamp":"x"}}`},
		{`{"request":{"uid":"1","resource":{"resource":"r"},"object":1,"oldObject":[]}}`, `[]`, `1`},
		{
			`{"request":{"uid":"1","resource":{"resource":"r"},"dryRun":true}}`,
			`{"metadata":{"annotations":{"token.fencedlease.io/report-writer":"34.bbbbbbbb/delete"}}}`,
			`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["a"]}}`,
		},
	} {
		for operation := range uint8(5) {
			f.Add([]byte(seed.body), []byte(seed.before), []byte(seed.after), operation, operation)
		}
	}
	operations := []admissionv1.Operation{admissionv1.Update, admissionv1.Create, admissionv1.Delete, admissionv1.Connect, "OTHER"}
	subresources := []string{"", "status", "scale", "other"}
	f.Fuzz(func(t *testing.T, body, before, after []byte, operation, subresource uint8) {
		whole := admissionv1.AdmissionReview{}
		if err := json.Unmarshal(body, &whole); err == nil && whole.Request != nil {
			w := held()
			w.waitError = errors.New("behind")
			if answer := handlerOf(w).Handle(t.Context(), admission.Request{AdmissionRequest: *whole.Request}); answer.Allowed {
				t.Errorf("admitted without a look at guards: %s", body)
			}
		}
		request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			UID: "1", Resource: metav1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "reports"},
			SubResource: subresources[int(subresource)%len(subresources)], Namespace: "reports", Name: "daily",
			Operation: operations[int(operation)%len(operations)], UserInfo: authenticationv1.UserInfo{Username: "worker"},
			OldObject: runtime.RawExtension{Raw: before}, Object: runtime.RawExtension{Raw: after},
		}}
		r, err := decode(request, fence.DefaultSystemWriters())
		if (err == nil) == (r == nil) {
			t.Errorf("want a review or an error, got %v, %v", r, err)
		}
		answer := handlerOf(stored(with(released), released)).Handle(t.Context(), request)
		if answer.Allowed || answer.Result == nil || answer.Result.Code < 400 {
			t.Errorf("%s %q from %q to %q: want a refusal, got %+v", request.Operation, request.SubResource, before, after, answer)
		}
		// Stamping refuses what is no review, and nothing else. What it adds is valid JSON.
		request.UserInfo.Extra = using(credentialOfB)
		stamped := handlerOf(listed()).Stamp(t.Context(), request)
		if stamped.Allowed != (err == nil) || len(stamped.Patch) > 0 && !json.Valid(stamped.Patch) {
			t.Errorf("%s %q from %q to %q: got %+v", request.Operation, request.SubResource, before, after, stamped)
		}
		// Without them nobody would know why.
		if answer.Result != nil && answer.Result.Message == "" {
			t.Error("the refusal says nothing")
		}
	})
}
