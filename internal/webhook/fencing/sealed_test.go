// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
)

// sealedTerm makes the term one that hands over by Seal, and sealed.
func sealedTerm(l *v1alpha1.FencedLease) {
	l.Status.Handover, l.Status.Seal, l.Status.SealedGeneration = v1alpha1.HandoverSeal, v1alpha1.SealRequired, l.Status.Generation
}

// behind is a world whose watched copy shows the sealed term of A, with the given changes, and whose store shows B's.
func behind(changes ...func(*v1alpha1.FencedLease)) *world {
	w := held()
	w.cached = []*v1alpha1.FencedLease{lease(append([]func(*v1alpha1.FencedLease){older, sealedTerm}, changes...)...)}
	return w
}

func guarding(resources ...string) func(*v1alpha1.FencedLease) {
	return func(l *v1alpha1.FencedLease) { l.Spec.Guards[0].Resources = resources }
}

// A copy that still shows a sealed term admits its writes without a read until the next seal has come to the object, and
// in no other case: each row says what the handler must ask the store for.
func TestAReplicaThatIsBehind(t *testing.T) {
	t.Parallel()
	const markA, writeA, sealB = "33.aaaaaaaa", "33.aaaaaaaa/2", "34.bbbbbbbb"
	byA := ask{old: report(markA), new: report(writeA, value("y"))}
	credentialA := map[string]authenticationv1.ExtraValue{v1alpha1.CredentialKey: {"JTI=a"}}
	listed := func(l *v1alpha1.FencedLease) {
		l.Status.Credentials = []v1alpha1.Credential{{ID: "JTI=a", Term: "aaaaaaaa"}}
	}
	labels := map[string]string{"app": "reports"}
	labelled := meta("labels", map[string]any{"app": "reports"})
	const allowed, unread = "allowed", "reports/report-writer=SealedTerm"
	for name, test := range map[string]struct {
		world *world
		ask   ask
		path  string
		// want is the outcome, audit the verdicts as the audit log shows them, if that matters.
		want, audit string
		reads       int
	}{
		"admits A's write to an object that B's seal has not come to": {
			world: behind(), ask: byA, want: allowed, audit: unread},
		"admits it on status": {
			world: behind(), ask: ask{subresource: "status", old: report(markA), new: report(writeA)}, path: PathStatus, want: allowed, audit: unread},
		"admits it by A's credential, judged by its id": {
			world: behind(listed), ask: ask{old: report(markA), new: report(markA, value("y")), extra: credentialA}, want: allowed, audit: unread},
		"admits it though the store cannot be read": {
			world: unreadable(behind()), ask: byA, want: allowed, audit: unread},
		"admits it under a guard with subjects": {
			world: behind(onlyWorkers), ask: byA, want: allowed, audit: unread},
		"admits it under an empty selector": {
			world: behind(selects(nil)), ask: byA, want: allowed, audit: unread},
		"admits it where the guard names both by their names": {
			world: behind(guarding("reports", "reports/status")), ask: byA, want: allowed, audit: unread},

		"refuses A's write once the seal has moved the mark": {
			world: behind(), ask: ask{old: report(sealB), new: report(writeA, value("y"))}, want: "StaleToken"},
		"refuses it on status, where the request shows what A has read": {
			world: behind(), ask: ask{subresource: "status", old: report(sealB), new: report(writeA)}, path: PathStatus, want: "StaleToken"},
		"refuses it by A's credential": {
			world: behind(listed), ask: ask{old: report(sealB), new: report(sealB, value("y")), extra: credentialA}, want: "StaleToken"},
		"refuses to remove the mark that the path rests on": {
			world: behind(), ask: ask{old: report(markA), new: report("", value("y"))}, want: "MarkTampered"},
		"reads for an object without a mark": {
			world: behind(), ask: ask{old: report(""), new: report(writeA)}, want: "StaleToken", reads: 1},
		"reads for a mark of another history": {
			world: behind(), ask: ask{old: report("33.zzzzzzzz"), new: report(writeA)}, want: "StaleToken", reads: 1},
		"reads under a guard with an objectSelector, which a seal looks through by labels": {
			world: behind(selects(labels)), ask: ask{old: report(markA, labelled), new: report(writeA, labelled)}, want: "StaleToken", reads: 1},
		"reads under a guard of several namespaces": {
			world: func() *world {
				w := behind(wide(nil))
				w.stored = []*v1alpha1.FencedLease{lease(wide(nil))}
				return w
			}(), ask: byA, want: "StaleToken", reads: 1},
		"reads on status where the guard leaves the main resource, and so the mark, to others": {
			world: behind(guarding("reports/status")), ask: ask{subresource: "status", old: report(markA), new: report(writeA)}, path: PathStatus,
			want: "StaleToken", reads: 1},
		"reads for a create": {
			world: behind(), ask: ask{operation: "CREATE", new: report(writeA)}, want: "StaleToken", reads: 1},
		"reads for a delete": {
			world: behind(), ask: ask{operation: "DELETE", old: report(markA), extra: extra(writeA)}, want: "StaleToken", reads: 1},
		"reads for a delete by intent": {
			world: behind(), ask: ask{operation: "DELETE", old: report("33.aaaaaaaa/delete")}, want: "MissingToken", reads: 1},
		"reads for a scale write": {
			world: scaled(behind(), "90", markA),
			ask:   ask{subresource: "scale", old: report(""), new: report(""), extra: extra(writeA)}, want: "StaleToken", reads: 1},
		"reads for a final delete": {
			world: behind(), ask: ask{old: report(markA, terminating("x")), new: report(writeA, terminating())}, want: "StaleToken", reads: 1},
		"reads under a lazy term": {
			world: behind(func(l *v1alpha1.FencedLease) { l.Status.Handover = v1alpha1.HandoverLazy }), ask: byA, want: "StaleToken", reads: 1},
		"reads while the term is not sealed": {
			world: behind(func(l *v1alpha1.FencedLease) { l.Status.SealedGeneration = nil }), ask: byA, want: "StaleToken", reads: 1},
		"reads after the release": {
			world: behind(released), ask: byA, want: "StaleToken", reads: 1},
		"reads for B's first write, above the copy": {
			world: behind(), ask: ask{old: report(markA), new: report("34.bbbbbbbb/1")}, want: allowed, reads: 1},
		"reads for a lease in Audit, and finds that it enforces now": {
			world: behind(audit), ask: byA, want: "StaleToken", reads: 1},
		"does not answer by guards that are older than the API server's": {
			world: lagging(behind()), ask: byA, want: "503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := test.path
			if path == "" {
				path = PathGuarded
			}
			got := post(t, test.world, path+"100", test.ask.review(t))
			if got := outcomeOf(got); got != test.want {
				t.Errorf("want %s, got %s", test.want, got)
			}
			if test.audit != "" {
				if diff := cmp.Diff(map[string]string{auditVerdict: test.audit}, got.AuditAnnotations); diff != "" {
					t.Errorf("audit annotations (-want +got):\n%s", diff)
				}
			}
			if test.world.reads != test.reads {
				t.Errorf("want %d reads, got %d", test.reads, test.world.reads)
			}
		})
	}
}

// A sealed term spares its own read, and not that of another lease.
func TestEachLeaseReadsForItself(t *testing.T) {
	t.Parallel()
	const secondKey = "token.fencedlease.io/second"
	both := func(first, other string) map[string]any {
		return report("", meta("annotations", map[string]any{key: first, secondKey: other}))
	}
	write := ask{old: both("33.aaaaaaaa", "34.bbbbbbbb"), new: both("33.aaaaaaaa/2", "34.bbbbbbbb/2")}
	for name, test := range map[string]struct {
		second []func(*v1alpha1.FencedLease)
		want   string
		reads  int
	}{
		"two sealed terms read nothing":                     {[]func(*v1alpha1.FencedLease){second, sealedTerm}, "allowed", 0},
		"a lazy term beside it reads":                       {[]func(*v1alpha1.FencedLease){second}, "allowed", 1},
		"a lazy term beside it that was released refuses":   {[]func(*v1alpha1.FencedLease){second, released}, "Released", 1},
		"a sealed term beside it that was released refuses": {[]func(*v1alpha1.FencedLease){second, sealedTerm, released}, "Released", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := behind()
			w.cached = append(w.cached, lease(test.second...))
			w.stored = append(w.stored, lease(test.second...))
			if got := outcomeOf(post(t, w, PathGuarded+"100", write.review(t))); got != test.want || w.reads != test.reads {
				t.Errorf("want %s by %d reads, got %s by %d", test.want, test.reads, got, w.reads)
			}
		})
	}
}

func TestAdmissionsWithoutAReadAreCountedAndTold(t *testing.T) {
	t.Parallel()
	w, metrics := behind(), NewMetrics()
	var told []int64
	mux := http.NewServeMux()
	h := NewHandler(Options{
		Leases: w, Namespaces: w, Objects: w, Permissions: w, Observer: w, Metrics: metrics,
		Clock: clocktesting.NewFakePassiveClock(time.Time{}), System: fence.DefaultSystemWriters(),
		Admitted: func(_ types.NamespacedName, generation int64) { told = append(told, generation) },
	})
	if err := Register(h, mux.Handle); err != nil {
		t.Fatal(err)
	}
	body := ask{old: report("33.aaaaaaaa"), new: report("33.aaaaaaaa/2")}.review(t)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, PathGuarded+"100", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	mux.ServeHTTP(recorder, request)
	review := admissionv1.AdmissionReview{}
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil || review.Response == nil || !review.Response.Allowed {
		t.Fatalf("answer %q: %v", recorder.Body.String(), err)
	}
	if diff := cmp.Diff([]int64{33}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if got := testutil.ToFloat64(metrics.reviews.WithLabelValues(outcomeAllow, string(fence.SealedTerm), "update", "main", "false")); got != 1 {
		t.Errorf("want 1 review counted, got %v", got)
	}
}
