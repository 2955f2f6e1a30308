// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/labels"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
)

const (
	credentialOfA = "JTI=0b7e3e4a-6a3d-4a53-8f3c-0000000000aa"
	credentialOfB = "JTI=0b7e3e4a-6a3d-4a53-8f3c-0000000000bb"
	otherToken    = "JTI=0b7e3e4a-6a3d-4a53-8f3c-0000000000cc"
	markOfB       = "34.bbbbbbbb"
)

// using is the extra of a request made with credentials.
func using(ids ...string) map[string]authenticationv1.ExtraValue {
	return map[string]authenticationv1.ExtraValue{v1alpha1.CredentialKey: ids}
}

func usingAnd(id, token string) map[string]authenticationv1.ExtraValue {
	e := using(id)
	e[key] = authenticationv1.ExtraValue{token}
	return e
}

func listsBoth(l *v1alpha1.FencedLease) {
	l.Status.Credentials = []v1alpha1.Credential{{ID: credentialOfA, Term: "aaaaaaaa"}, {ID: credentialOfB, Term: "bbbbbbbb"}}
}

func listsA(l *v1alpha1.FencedLease) {
	l.Status.Credentials = []v1alpha1.Credential{{ID: credentialOfA, Term: "aaaaaaaa"}}
}

func listed(changes ...func(*v1alpha1.FencedLease)) *world {
	return with(append(changes, listsBoth)...)
}

func twoListing() *world {
	second := func(l *v1alpha1.FencedLease) {
		l.Name, l.Status.Generation, l.Status.Term = "auditor", ptr.To[int64](7), ptr.To("dddddddd")
		l.Status.Credentials = []v1alpha1.Credential{{ID: credentialOfB, Term: "dddddddd"}}
	}
	return &world{
		cached: []*v1alpha1.FencedLease{lease(second), lease(listsBoth)},
		stored: []*v1alpha1.FencedLease{lease(second), lease(listsBoth)},
	}
}

func annotations(values map[string]any) func(map[string]any) { return meta("annotations", values) }

const (
	setMark = `{"op":"add","path":"/metadata/annotations/token.fencedlease.io~1report-writer","value":"34.bbbbbbbb"}`
	addMap  = `{"op":"add","path":"/metadata/annotations","value":{}}`
	// Whatever a review shows, the stamping phase admits it.
	noPatch = ""
)

func TestStampingIsTotal(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		world  *world
		ask    ask
		want   string // the patch
		result stampResult
		reads  int
	}{
		"create": {
			world: listed(), ask: ask{operation: "CREATE", new: report("", annotations(map[string]any{"note": "x"})), extra: using(credentialOfB)},
			want: "[" + setMark + "]", result: stampSet,
		},
		"create of an object without annotations": {
			world: listed(), ask: ask{operation: "CREATE", new: report(""), extra: using(credentialOfB)}, want: "[" + addMap + "," + setMark + "]", result: stampSet,
		},
		"create of an object with no annotation in the map": {
			world: listed(), ask: ask{operation: "CREATE", new: report("", annotations(map[string]any{})), extra: using(credentialOfB)},
			want: "[" + setMark + "]", result: stampSet,
		},
		"create of an object whose annotations are null": {
			world: listed(), ask: ask{operation: "CREATE", new: report("", meta("annotations", nil)), extra: using(credentialOfB)},
			want: "[" + addMap + "," + setMark + "]", result: stampSet,
		},
		"create by generateName": {
			world: listed(), ask: ask{operation: "CREATE", name: ptr.To(""), new: report("", meta("name", "")), extra: using(credentialOfB)},
			want: "[" + addMap + "," + setMark + "]", result: stampSet,
		},
		"update that inherits an older mark": {
			world: listed(), ask: ask{old: report(stale), new: report(stale, value("y")), extra: using(credentialOfB)}, want: "[" + setMark + "]", result: stampSet,
		},
		"update that inherits a mark of this term with an operation": {
			world: listed(), ask: ask{old: report(current), new: report(current, value("y")), extra: using(credentialOfB)}, want: "[" + setMark + "]", result: stampSet,
		},
		"update that leaves the mark out": {
			world: listed(), ask: ask{old: report(stale), new: report("", value("y")), extra: using(credentialOfB)},
			want: "[" + addMap + "," + setMark + "]", result: stampSet,
		},
		"update of an object with the credential's mark": {
			world: listed(), ask: ask{old: report(markOfB), new: report(markOfB, value("y")), extra: using(credentialOfB)}, result: stampNotNeeded,
		},
		"update of an object with a newer mark": {
			world: listed(), ask: ask{old: report("35.cccccccc/1"), new: report("35.cccccccc/1"), extra: using(credentialOfB)}, result: stampNotNeeded,
		},
		"update with a token of its own": {
			world: listed(), ask: ask{old: report(stale), new: report(current), extra: using(credentialOfB)}, result: stampNotNeeded,
		},
		"update with a token in the request": {
			world: listed(), ask: ask{old: report(stale), new: report(stale), extra: usingAnd(credentialOfB, current)}, result: stampNotNeeded,
		},
		"update with a credential of an ended term needs no read": {
			world: listed(), ask: ask{old: report(stale), new: report(stale), extra: using(credentialOfA)}, result: stampEnded,
		},
		"update with a credential that the copy does not know yet": {
			world: stored(with(listsA), listsBoth), ask: ask{old: report(stale), new: report(stale), extra: using(credentialOfB)},
			want: "[" + setMark + "]", result: stampSet, reads: 1,
		},
		"update with a credential that the copy does not know yet and that has ended since": {
			world: stored(with(), listsA), ask: ask{old: report(stale), new: report(stale), extra: using(credentialOfA)}, result: stampEnded, reads: 1,
		},
		"update with a credential that has ended a moment ago is left to the validating phase": {
			world: stored(with(older, listsA), listsBoth), ask: ask{old: report(""), new: report("", annotations(map[string]any{})), extra: using(credentialOfA)},
			want:   `[{"op":"add","path":"/metadata/annotations/token.fencedlease.io~1report-writer","value":"33.aaaaaaaa"}]`,
			result: stampSet,
		},
		"update with an ordinary token": {
			world: listed(), ask: ask{old: report(stale), new: report(stale), extra: using(otherToken)}, result: stampUnlisted, reads: 1,
		},
		"update without a credential": {
			world: listed(), ask: ask{old: report(stale), new: report(stale)}, result: stampUnlisted,
		},
		"update with two credentials": {
			world: listed(), ask: ask{old: report(stale), new: report(stale), extra: using(credentialOfB, credentialOfA)}, result: stampUnlisted,
		},
		"a released lease": {
			world: listed(released), ask: ask{old: report(stale), new: report(stale), extra: using(credentialOfB)}, want: "[" + setMark + "]", result: stampSet,
		},
		"a lease in Audit": {
			world: listed(audit), ask: ask{old: report(stale), new: report(stale), extra: using(credentialOfB)}, want: "[" + setMark + "]", result: stampSet,
		},
		"two leases": {
			world: twoListing(), ask: ask{old: report(stale), new: report(stale), extra: using(credentialOfB)},
			want:   `[{"op":"add","path":"/metadata/annotations/token.fencedlease.io~1auditor","value":"7.dddddddd"},` + setMark + "]",
			result: stampSet,
		},
		"two leases of which one lists the credential": {
			world: twoListing(), ask: ask{old: report(""), new: report("", annotations(map[string]any{})), extra: using(credentialOfA)}, result: stampEnded, reads: 1,
		},
		"a guard that leaves the main resource open": {
			world: listed(func(l *v1alpha1.FencedLease) { l.Spec.Guards[0].Resources = []string{"reports/status"} }),
			ask:   ask{old: report(stale), new: report(stale), extra: using(credentialOfB)}, result: stampUnguarded,
		},
		"an object that enters the selector": {
			world: listed(selects(map[string]string{"a": "b"})),
			ask:   ask{old: report(stale), new: report(stale, meta("labels", map[string]any{"a": "b"})), extra: using(credentialOfB)},
			want:  "[" + setMark + "]", result: stampSet,
		},
		"an object outside the selector": {
			world: listed(selects(map[string]string{"a": "b"})), ask: ask{old: report(stale), new: report(stale), extra: using(credentialOfB)}, result: stampUnguarded,
		},
		"another namespace": {
			world: listed(), ask: ask{namespace: ptr.To("other"), old: report(stale), new: report(stale), extra: using(credentialOfB)}, result: stampUnguarded,
		},
		"a namespace whose labels cannot be read": {
			world: listed(wide(map[string]string{"a": "b"})),
			ask:   ask{namespace: ptr.To("other"), old: report(stale), new: report(stale), extra: using(credentialOfB)}, result: stampFailed,
		},
		"a namespace that a wide guard selects": {
			world: inNamespaces(listed(wide(map[string]string{"a": "b"})), labels.Set{"a": "b"}),
			ask:   ask{namespace: ptr.To("other"), old: report(stale), new: report(stale), extra: using(credentialOfB)}, want: "[" + setMark + "]", result: stampSet,
		},
		"a cluster-scoped object under a wide guard": {
			world: listed(wide(nil)), ask: ask{namespace: ptr.To(""), old: report(stale), new: report(stale), extra: using(credentialOfB)},
			want: "[" + setMark + "]", result: stampSet,
		},
		"nothing guards the resource": {
			world: &world{}, ask: ask{old: report(stale), new: report(stale), extra: using(credentialOfB)}, result: stampUnguarded,
		},
		"the lease is gone": {
			world: &world{cached: []*v1alpha1.FencedLease{lease()}}, ask: ask{old: report(stale), new: report(stale), extra: using(credentialOfB)},
			result: stampUnguarded, reads: 1,
		},
		"no quorum and a credential that the copy takes for current": {
			world: unreadable(listed()), ask: ask{old: report(stale), new: report(stale), extra: using(credentialOfB)}, want: "[" + setMark + "]", result: stampSet,
		},
		"no quorum and a credential that the copy does not know": {
			world: unreadable(listed()), ask: ask{old: report(stale), new: report(stale), extra: using(otherToken)}, result: stampFailed, reads: 1,
		},
		"a replica that has not seen the guards yet": {
			world: &world{waitError: context.DeadlineExceeded}, ask: ask{old: report(stale), new: report(stale), extra: using(credentialOfB)}, result: stampFailed,
		},
		"dry run": {
			world: listed(), ask: ask{dryRun: true, old: report(stale), new: report(stale), extra: using(credentialOfB)}, want: "[" + setMark + "]", result: stampSet,
		},
		"status, which no registration asks for here": {
			world: listed(), ask: ask{subresource: "status", old: report(stale), new: report(stale), extra: using(credentialOfB)}, result: stampNotNeeded,
		},
		"scale, which no registration asks for here": {
			world: listed(), ask: ask{subresource: "scale", old: report(""), new: report(""), extra: using(otherToken)}, result: stampNotNeeded,
		},
		"delete, which no registration asks for here": {
			world: listed(), ask: ask{operation: "DELETE", old: report(stale), extra: using(otherToken)}, result: stampNotNeeded,
		},
		"connect, which no registration asks for here": {
			world: listed(), ask: ask{operation: "CONNECT", extra: using(credentialOfB)}, result: stampNotNeeded,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := post(t, tt.world, PathStamp+"100?timeout=5s", tt.ask.review(t))
			if !answer.Allowed || answer.UID != "r1" {
				t.Errorf("stamping decides nothing, and the answer is %+v", answer)
			}
			if diff := cmp.Diff(tt.want, string(answer.Patch)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if (answer.PatchType != nil) != (tt.want != noPatch) {
				t.Errorf("type of the patch: %v", answer.PatchType)
			}
			if tt.world.reads != tt.reads {
				t.Errorf("want %d linearizable reads, got %d", tt.reads, tt.world.reads)
			}
			_, result, err := handlerOf(tt.world).stamps(t.Context(), decoded(t, tt.ask))
			if result != tt.result || (err != nil) != (tt.result == stampFailed) {
				t.Errorf("result %q (%v), want %q", result, err, tt.result)
			}
		})
	}
}

// decoded is the review of an ask.
func decoded(t *testing.T, a ask) *review {
	t.Helper()
	whole := admissionv1.AdmissionReview{}
	if err := json.Unmarshal(a.review(t), &whole); err != nil {
		t.Fatal(err)
	}
	r, err := decode(admission.Request{AdmissionRequest: *whole.Request}, fence.DefaultSystemWriters())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMalformedCallsAndPanicsOfTheStampingPathAreRefused(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"r1"}}`} {
		if answer := post(t, listed(), PathStamp+"100", []byte(body)); answer.Allowed || answer.Result.Code != 400 {
			t.Errorf("%q: %+v", body, answer)
		}
	}
	if answer := post(t, &world{panics: true}, PathStamp+"100", ask{old: report(""), new: report(""), extra: using(credentialOfB)}.review(t)); answer.Allowed {
		t.Errorf("a panic: %+v", answer)
	}
}

// Whatever a write shows, what stamping makes of it is not refused for want of a stamp, and a credential is accepted only
// with one.
func TestTheValidatingPhaseAcceptsWhatWasStamped(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		world *world
		ask   ask
		want  string
		reads int
	}{
		"create, stamped":            {listed(), ask{operation: "CREATE", new: report(markOfB), extra: using(credentialOfB)}, "allowed", 1},
		"create, not stamped":        {listed(), ask{operation: "CREATE", new: report(""), extra: using(credentialOfB)}, "503", 1},
		"update, stamped":            {listed(), ask{old: report(stale), new: report(markOfB), extra: using(credentialOfB)}, "allowed", 1},
		"update, not stamped":        {listed(), ask{old: report(stale), new: report(stale), extra: using(credentialOfB)}, "503", 1},
		"update, not stamped, Audit": {listed(audit), ask{old: report(stale), new: report(stale), extra: using(credentialOfB)}, "allowed", 1},
		"status":                     {listed(), ask{subresource: "status", old: report(stale), new: report(stale), extra: using(credentialOfB)}, "allowed", 1},
		"scale":                      {scaled(listed(), "90", stale), ask{subresource: "scale", old: report(""), new: report(""), extra: using(credentialOfB)}, "allowed", 1},
		"delete":                     {listed(), ask{operation: "DELETE", old: report(stale), extra: using(credentialOfB)}, "allowed", 1},
		"an ended term":              {listed(), ask{operation: "DELETE", old: report(stale), extra: using(credentialOfA)}, "StaleToken", 0},
		"an ended term, status":      {listed(), ask{subresource: "status", old: report(stale), new: report(stale), extra: using(credentialOfA)}, "StaleToken", 0},
		"an ended term, scale":       {scaled(listed(), "90", stale), ask{subresource: "scale", old: report(""), new: report(""), extra: using(credentialOfA)}, "StaleToken", 0},
		"an ended term, no quorum":   {unreadable(listed()), ask{operation: "DELETE", old: report(stale), extra: using(credentialOfA)}, "StaleToken", 0},
		"an ended term, stamped when it was current": {
			stored(with(older, listsA), listsBoth), ask{old: report("32.00000000"), new: report("33.aaaaaaaa"), extra: using(credentialOfA)}, "StaleToken", 1},
		"a current term, no quorum": {unreadable(listed()), ask{operation: "DELETE", old: report(stale), extra: using(credentialOfB)}, "503", 1},
		"an ordinary token":         {listed(), ask{operation: "DELETE", old: report(stale), extra: using(otherToken)}, "MissingToken", 1},
		"an ordinary token of nobody's subject": {
			listed(onlyWorkers), ask{operation: "DELETE", old: report(stale), user: "jane", extra: using(otherToken)}, "allowed", 1},
		"a credential of a released term": {listed(released), ask{operation: "DELETE", old: report(stale), extra: using(credentialOfB)}, "Released", 1},
		"a credential recorded a moment ago": {
			stored(with(listsA), listsBoth), ask{operation: "DELETE", old: report(stale), extra: using(credentialOfB)}, "allowed", 1},
		"a token of another term beside the credential": {
			listed(), ask{operation: "DELETE", old: report("32.00000000"), extra: usingAnd(credentialOfB, "34.zzzzzzzz")}, "MalformedToken", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := PathGuarded
			if tt.ask.subresource == "status" {
				path = PathStatus
			}
			answer := post(t, tt.world, path+"100", tt.ask.review(t))
			if diff := cmp.Diff(tt.want, outcomeOf(answer)); diff != "" {
				t.Errorf("answer (-want +got):\n%s\n%+v", diff, answer.Result)
			}
			if tt.world.reads != tt.reads {
				t.Errorf("want %d linearizable reads, got %d", tt.reads, tt.world.reads)
			}
		})
	}
}

func TestStampsAreCounted(t *testing.T) {
	t.Parallel()
	metrics := NewMetrics()
	count := func(result stampResult) float64 {
		return testutil.ToFloat64(metrics.stamps.WithLabelValues(string(result)))
	}
	for _, tt := range []struct {
		ask  ask
		want stampResult
	}{
		{ask{operation: "CREATE", new: report(""), extra: using(credentialOfB)}, stampSet},
		{ask{operation: "CREATE", new: report(""), extra: using(credentialOfA), dryRun: true}, stampEnded},
		{ask{operation: "CREATE", new: report(""), extra: using(otherToken)}, stampUnlisted},
	} {
		w := listed()
		h := NewHandler(Options{
			Leases: w, Namespaces: w, Objects: w, Permissions: w, Observer: w,
			Metrics: metrics, Clock: clocktesting.NewFakePassiveClock(time.Time{}), System: fence.DefaultSystemWriters(),
		})
		whole := admissionv1.AdmissionReview{}
		if err := json.Unmarshal(tt.ask.review(t), &whole); err != nil {
			t.Fatal(err)
		}
		h.Stamp(t.Context(), admission.Request{AdmissionRequest: *whole.Request})
		if got := count(tt.want); got != 1 {
			t.Errorf("%s: counted %v", tt.want, got)
		}
	}
	if got := testutil.CollectAndCount(metrics.stamps); got != len(stampResults()) {
		t.Errorf("%d results, want %d", got, len(stampResults()))
	}
	if got := testutil.ToFloat64(metrics.reviews.WithLabelValues(outcomeAllow, string(fence.CurrentToken), "update", "main", "false")); got != 0 {
		t.Errorf("stamping counts as %v verdicts", got)
	}
}
