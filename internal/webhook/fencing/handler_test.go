// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
)

const (
	key     = "token.fencedlease.io/report-writer"
	current = "34.bbbbbbbb/1"
	stale   = "33.aaaaaaaa/9"
)

// world stands for everything behind the handler.
type world struct {
	cached, stored []*v1alpha1.FencedLease
	readError      error
	waitError      error
	objects        map[string]*metav1.PartialObjectMetadata
	namespaces     map[string]labels.Set
	mayBypass      bool
	permissionErr  error
	panics         bool

	reads, ahead, overridden int
}

func (w *world) Guarding(schema.GroupResource, string) ([]*v1alpha1.FencedLease, error) {
	if w.panics {
		panic("the copy is broken")
	}
	return w.cached, nil
}

func (w *world) Fresh(_ context.Context, k types.NamespacedName) (*v1alpha1.FencedLease, error) {
	w.reads++
	if w.readError != nil {
		return nil, w.readError
	}
	for _, l := range w.stored {
		if l.Namespace == k.Namespace && l.Name == k.Name {
			return l, nil
		}
	}
	return nil, apierrors.NewNotFound(v1alpha1.Resource.GroupResource(), k.Name)
}

func (w *world) WaitFor(context.Context, string) error { return w.waitError }

func (w *world) Get(_ context.Context, _ schema.GroupVersionResource, _, name string) (*metav1.PartialObjectMetadata, error) {
	if o, ok := w.objects[name]; ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "reports"}, name)
}

func (w *world) Cached(_ context.Context, name string) (labels.Set, bool) {
	s, ok := w.namespaces[name]
	return s, ok
}

func (w *world) Live(_ context.Context, name string) (labels.Set, error) {
	if s, ok := w.namespaces[name]; ok {
		return s, nil
	}
	return nil, errors.New("no such namespace")
}

func (w *world) MayBypass(context.Context, authenticationv1.UserInfo, types.NamespacedName) (bool, error) {
	return w.mayBypass, w.permissionErr
}

func (w *world) GenerationAhead(Sighting)                                 { w.ahead++ }
func (w *world) Overridden(*v1alpha1.FencedLease, string, string, string) { w.overridden++ }

func lease(changes ...func(*v1alpha1.FencedLease)) *v1alpha1.FencedLease {
	l := &v1alpha1.FencedLease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "reports", Name: "report-writer", ResourceVersion: "100", UID: "u1"},
		Spec: v1alpha1.FencedLeaseSpec{
			Enforcement: v1alpha1.EnforcementEnforce,
			Guards:      []v1alpha1.Guard{{APIGroups: []string{"example.com"}, Resources: []string{"reports/*"}}},
		},
		Status: v1alpha1.FencedLeaseStatus{
			Generation: ptr.To[int64](34), Term: ptr.To("bbbbbbbb"), Token: ptr.To("34.bbbbbbbb"),
			HolderIdentity: ptr.To("worker-b"), GenerationFloor: ptr.To[int64](1),
		},
	}
	for _, c := range changes {
		c(l)
	}
	return l
}

func audit(l *v1alpha1.FencedLease)    { l.Spec.Enforcement = v1alpha1.EnforcementAudit }
func released(l *v1alpha1.FencedLease) { l.Status.HolderIdentity = ptr.To("") }
func older(l *v1alpha1.FencedLease) {
	l.Status.Generation, l.Status.Term, l.Status.HolderIdentity = ptr.To[int64](33), ptr.To("aaaaaaaa"), ptr.To("worker-a")
}

func onlyWorkers(l *v1alpha1.FencedLease) {
	l.Spec.Guards[0].Subjects = []v1alpha1.Subject{{Kind: v1alpha1.SubjectGroup, Name: "workers"}}
}

func selects(match map[string]string) func(*v1alpha1.FencedLease) {
	return func(l *v1alpha1.FencedLease) {
		l.Spec.Guards[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: match}
	}
}

func wide(match map[string]string) func(*v1alpha1.FencedLease) {
	return func(l *v1alpha1.FencedLease) {
		l.Spec.Guards[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: match}
	}
}

func report(mark string, changes ...func(map[string]any)) map[string]any {
	metadata := map[string]any{"name": "daily", "namespace": "reports", "resourceVersion": "90", "uid": "o1"}
	if mark != "" {
		metadata["annotations"] = map[string]any{key: mark}
	}
	object := map[string]any{"apiVersion": "example.com/v1", "kind": "Report", "metadata": metadata, "spec": map[string]any{"value": "x"}}
	for _, c := range changes {
		c(object)
	}
	return object
}

func meta(field string, value any) func(map[string]any) {
	return func(o map[string]any) {
		if m, ok := o["metadata"].(map[string]any); ok {
			m[field] = value
		}
	}
}

func value(v string) func(map[string]any) {
	return func(o map[string]any) { o["spec"] = map[string]any{"value": v} }
}

func terminating(finalizers ...any) func(map[string]any) {
	return func(o map[string]any) {
		meta("deletionTimestamp", "2026-01-01T00:00:00Z")(o)
		meta("finalizers", finalizers)(o)
	}
}

// ask is one review. Zero fields stand for an update of reports/daily by an ordinary user.
type ask struct {
	operation   admissionv1.Operation
	subresource string
	resource    string
	group       string
	namespace   *string
	name        *string
	old, new    map[string]any
	user        string
	groups      []string
	extra       map[string]authenticationv1.ExtraValue
	dryRun      bool
}

func extra(values ...string) map[string]authenticationv1.ExtraValue {
	return map[string]authenticationv1.ExtraValue{key: values}
}

func (a ask) review(t testing.TB) []byte {
	t.Helper()
	if a.operation == "" {
		a.operation = admissionv1.Update
	}
	if a.resource == "" {
		a.resource = "reports"
	}
	if a.group == "" {
		a.group = "example.com"
	}
	req := &admissionv1.AdmissionRequest{
		UID: "r1", Kind: metav1.GroupVersionKind{Group: a.group, Version: "v1", Kind: "Report"},
		Resource:    metav1.GroupVersionResource{Group: a.group, Version: "v1", Resource: a.resource},
		SubResource: a.subresource, Name: ptr.Deref(a.name, "daily"), Namespace: ptr.Deref(a.namespace, "reports"),
		Operation: a.operation, DryRun: &a.dryRun,
		UserInfo: authenticationv1.UserInfo{Username: a.user, Groups: a.groups, Extra: a.extra},
	}
	if a.old != nil {
		req.OldObject = runtime.RawExtension{Raw: encode(t, a.old)}
	}
	if a.new != nil {
		req.Object = runtime.RawExtension{Raw: encode(t, a.new)}
	}
	return encode(t, admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: req,
	})
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func serve(w *world) http.Handler {
	mux := http.NewServeMux()
	handler := NewHandler(Options{
		Leases: w, Namespaces: w, Objects: w, Permissions: w, Observer: w,
		Metrics: NewMetrics(), Clock: clocktesting.NewFakePassiveClock(time.Time{}),
		System: fence.DefaultSystemWriters(), ExcludedNamespaces: []string{"kube-system"},
	})
	if err := Register(handler, mux.Handle); err != nil {
		panic(err)
	}
	return mux
}

func post(t *testing.T, w *world, path string, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	serve(w).ServeHTTP(recorder, request)
	review := admissionv1.AdmissionReview{}
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil || review.Response == nil {
		t.Fatalf("no review in the answer %d %q: %v", recorder.Code, recorder.Body.String(), err)
	}
	return review.Response
}

func held() *world {
	return &world{cached: []*v1alpha1.FencedLease{lease()}, stored: []*v1alpha1.FencedLease{lease()}}
}

func with(changes ...func(*v1alpha1.FencedLease)) *world {
	return &world{cached: []*v1alpha1.FencedLease{lease(changes...)}, stored: []*v1alpha1.FencedLease{lease(changes...)}}
}

func stored(w *world, changes ...func(*v1alpha1.FencedLease)) *world {
	w.stored = []*v1alpha1.FencedLease{lease(changes...)}
	return w
}

// lagging is a world whose watched copy does not reach the guards.
func lagging(w *world) *world {
	w.waitError = errors.New("still at 99")
	return w
}

const (
	collector = "system:serviceaccount:kube-system:generic-garbage-collector"
	migrator  = "system:serviceaccount:kube-system:storage-version-migrator-controller"
)

func TestHandlerIsTotal(t *testing.T) {
	t.Parallel()
	const allowed = "allowed"
	tests := map[string]struct {
		world *world
		ask   ask
		path  string
		audit bool   // only leases in Audit ask for the review
		want  string // allowed, or the cause of a refusal, or the HTTP-like code of an answer without one
		reads int
	}{
		"create with the current token in the annotation": {
			world: held(), ask: ask{operation: "CREATE", new: report(current)}, want: allowed, reads: 1,
		},
		"create with a stale token is refused without a read": {
			world: held(), ask: ask{operation: "CREATE", new: report(stale)}, want: "StaleToken",
		},
		"create without a token": {
			world: held(), ask: ask{operation: "CREATE", new: report("")}, want: "MissingToken", reads: 1,
		},
		"create by generateName, named in the object only": {
			world: held(), ask: ask{operation: "CREATE", name: ptr.To(""), new: report(current)}, want: allowed, reads: 1,
		},
		"create with the request's token, stamped": {
			world: held(), ask: ask{operation: "CREATE", new: report("34.bbbbbbbb"), extra: extra("34.bbbbbbbb")}, want: allowed, reads: 1,
		},
		"create with the request's token, not stamped": {
			world: held(), ask: ask{operation: "CREATE", new: report(""), extra: extra("34.bbbbbbbb")}, want: "503", reads: 1,
		},
		"update that changes the annotation to the current token": {
			world: held(), ask: ask{old: report(stale), new: report(current, value("y"))}, want: allowed, reads: 1,
		},
		"update that inherits the newer leader's mark presents nothing": {
			world: held(), ask: ask{old: report(current), new: report(current, value("stale result"))}, want: "MissingToken", reads: 1,
		},
		"update below the mark": {
			world: with(older), ask: ask{old: report(current), new: report("33.aaaaaaaa/10")}, want: "StaleToken",
		},
		"update with a token that a newer lease has made stale, by a cached lease that does not know": {
			world: stored(with(older)), ask: ask{old: report(stale), new: report("33.aaaaaaaa/10")}, want: "StaleToken", reads: 1,
		},
		"update above a cached lease that is behind": {
			world: stored(with(older)), ask: ask{old: report(stale), new: report(current)}, want: allowed, reads: 1,
		},
		"update above the lease": {
			world: held(), ask: ask{old: report(stale), new: report("35.cccccccc/1")}, want: "FutureToken", reads: 1,
		},
		"update of another history": {
			world: held(), ask: ask{old: report(stale), new: report("34.zzzzzzzz/1")}, want: "ForkedTerm", reads: 1,
		},
		"update after the release": {
			world: with(released), ask: ask{old: report(stale), new: report(current)}, want: "Released", reads: 1,
		},
		"update that removes the mark": {
			world: held(), ask: ask{old: report(current), new: report("")}, want: "MarkTampered",
		},
		"update with garbage": {
			world: held(), ask: ask{old: report(stale), new: report("new")}, want: "MalformedToken",
		},
		"update with two values in the request": {
			world: held(), ask: ask{old: report(stale), new: report(current), extra: extra(current, current)}, want: "MalformedToken",
		},
		"update whose annotation and request disagree": {
			world: held(), ask: ask{old: report(stale), new: report(current), extra: extra("34.bbbbbbbb/2")}, want: "MalformedToken",
		},
		"status with the token in the request's annotations, in the mutating phase": {
			world: held(), path: PathStatus, ask: ask{subresource: "status", old: report(stale), new: report(current)}, want: allowed, reads: 1,
		},
		"status that drops the annotation presents nothing, and removes nothing": {
			world: held(), path: PathStatus, ask: ask{subresource: "status", old: report(current), new: report("")}, want: "MissingToken", reads: 1,
		},
		"status with a stale token": {
			world: held(), path: PathStatus, ask: ask{subresource: "status", old: report(current), new: report(stale)}, want: "StaleToken",
		},
		"status with the request's token": {
			world: held(), path: PathStatus, ask: ask{subresource: "status", old: report(stale), new: report(stale), extra: extra("34.bbbbbbbb")}, want: allowed, reads: 1,
		},
		"status based on an older version, sending back its mark": {
			world: held(), path: PathStatus, ask: ask{subresource: "status", old: report(current), new: report(stale, meta("resourceVersion", "80"))}, want: "Conflict",
		},
		"status based on an older version, sending back its mark beside the request's token": {
			world: held(), path: PathStatus, ask: ask{
				subresource: "status", old: report(current), new: report("34.bbbbbbbb/0", meta("resourceVersion", "80")), extra: extra("34.bbbbbbbb"),
			}, want: "Conflict",
		},
		"scale with the request's token": {
			world: scaled(held(), "90", stale), ask: ask{subresource: "scale", old: report(""), new: report(""), extra: extra("34.bbbbbbbb")}, want: allowed, reads: 1,
		},
		"scale below the mark of the stored object": {
			world: scaled(with(older), "90", current), ask: ask{subresource: "scale", old: report(""), new: report(""), extra: extra("33.aaaaaaaa")}, want: "StaleToken",
		},
		"scale without a token": {
			world: scaled(held(), "90", current), ask: ask{subresource: "scale", old: report(""), new: report("")}, want: "MissingToken", reads: 1,
		},
		"scale of an object that has changed since": {
			world: scaled(held(), "91", stale), ask: ask{subresource: "scale", old: report(""), new: report(""), extra: extra("34.bbbbbbbb")}, want: "503",
		},
		"scale of an object that is gone": {
			world: held(), ask: ask{subresource: "scale", old: report(""), new: report(""), extra: extra("34.bbbbbbbb")}, want: "503",
		},
		"delete with the request's token": {
			world: held(), ask: ask{operation: "DELETE", old: report(stale), extra: extra("34.bbbbbbbb")}, want: allowed, reads: 1,
		},
		"delete with a stale token": {
			world: held(), ask: ask{operation: "DELETE", old: report(current), extra: extra("33.aaaaaaaa")}, want: "StaleToken",
		},
		"delete without a token": {
			world: held(), ask: ask{operation: "DELETE", old: report(current)}, want: "MissingToken", reads: 1,
		},
		"delete of an object whose mark asks for it": {
			world: held(), ask: ask{operation: "DELETE", old: report("34.bbbbbbbb/delete")}, want: allowed, reads: 1,
		},
		"delete of an object whose mark asked for it under an earlier generation": {
			world: held(), ask: ask{operation: "DELETE", old: report("33.aaaaaaaa/delete")}, want: "MissingToken", reads: 1,
		},
		"deletecollection, which names no object": {
			world: held(), ask: ask{operation: "DELETE", name: ptr.To(""), old: report(current)}, want: "MissingToken", reads: 1,
		},
		"delete by the garbage collector": {
			world: held(), ask: ask{operation: "DELETE", old: report(current), user: collector}, want: allowed,
		},
		"finalizers by the garbage collector": {
			world: held(), ask: ask{old: report(current, terminating("orphan")), new: report(current, terminating()), user: collector}, want: allowed,
		},
		"spec by the garbage collector's user": {
			world: held(), ask: ask{old: report(current), new: report(current, value("y")), user: collector}, want: "MissingToken", reads: 1,
		},
		"unchanged object by the storage version migrator": {
			world: held(), ask: ask{old: report(current), new: report(current, meta("resourceVersion", "90")), user: migrator}, want: allowed,
		},
		"owner references by the storage version migrator": {
			world: held(), ask: ask{old: report(current), new: report(current, meta("ownerReferences", []any{})), user: migrator}, want: "MissingToken", reads: 1,
		},
		"final delete without a token": {
			world: held(), ask: ask{old: report(current, terminating("a")), new: report(current, terminating())}, want: "FinalDelete", reads: 1,
		},
		"final delete with the current token": {
			world: held(), ask: ask{old: report(stale, terminating("a")), new: report(current, terminating())}, want: allowed, reads: 1,
		},
		"a finalizer, not the last, with the current token": {
			world: held(), ask: ask{old: report(stale, terminating("a", "b")), new: report(current, terminating("b"))}, want: allowed, reads: 1,
		},
		"nobody's subject": {
			world: with(onlyWorkers), ask: ask{old: report(current), new: report(current, value("y")), user: "jane"}, want: allowed, reads: 1,
		},
		"nobody's subject who presents a stale token": {
			world: with(onlyWorkers), ask: ask{old: report(current), new: report(stale), user: "jane"}, want: "StaleToken",
		},
		"a subject by group": {
			world: with(onlyWorkers), ask: ask{old: report(current), new: report(current), groups: []string{"workers"}}, want: "MissingToken", reads: 1,
		},
		"override with the verb": {
			world: bypass(held(), true), ask: ask{old: report(current), new: report(current, value("y")), extra: override("disk full")}, want: allowed, reads: 1,
		},
		"override without the verb": {
			world: bypass(held(), false), ask: ask{old: report(current), new: report(current, value("y")), extra: override("disk full")}, want: "MissingToken", reads: 1,
		},
		"override does not help a stale token": {
			world: bypass(held(), true), ask: ask{old: report(current), new: report(stale), extra: override("disk full")}, want: "StaleToken",
		},
		"override does not help to remove a mark": {
			world: bypass(held(), true), ask: ask{old: report(current), new: report(""), extra: override("disk full")}, want: "MarkTampered",
		},
		"override that cannot be looked up": {
			world: bypassError(held()), ask: ask{old: report(current), new: report(current, value("y")), extra: override("x")}, want: "503", reads: 1,
		},
		"audit admits what it would refuse": {
			world: with(audit), ask: ask{old: report(current), new: report(stale)}, want: allowed, reads: 1,
		},
		"audit that has become enforcement a moment ago": {
			world: stored(with(audit)), ask: ask{old: report(current), new: report(stale)}, want: "StaleToken", reads: 1,
		},
		"audit without a quorum": {
			world: unreadable(with(audit)), ask: ask{old: report(current), new: report(stale)}, want: allowed, reads: 1,
		},
		"audit by guards that this replica has not seen": {
			world: lagging(with(audit)), ask: ask{old: report(current), new: report(stale)}, audit: true, want: allowed,
		},
		"audit of a status by guards that this replica has not seen": {
			world: lagging(with(audit)), ask: ask{subresource: "status", old: report(current), new: report(stale)}, path: PathStatus, audit: true, want: allowed,
		},
		"audit and a lease that enforces, by the call for audit": {
			world: held(), ask: ask{old: report(current), new: report(stale)}, audit: true, want: "StaleToken",
		},
		"audit of a scale whose object cannot be read": {
			world: with(audit), ask: ask{subresource: "scale", old: report(""), new: report("")}, want: allowed,
		},
		"dry run of a stale write": {
			world: held(), ask: ask{old: report(current), new: report(stale), dryRun: true}, want: "StaleToken",
		},
		"dry run of a current write": {
			world: held(), ask: ask{old: report(stale), new: report(current), dryRun: true}, want: allowed, reads: 1,
		},
		"nothing guards the resource": {
			world: &world{}, ask: ask{old: report(""), new: report("")}, want: allowed,
		},
		"a subresource that the guard leaves open": {
			world: with(func(l *v1alpha1.FencedLease) { l.Spec.Guards[0].Resources = []string{"reports"} }),
			ask:   ask{subresource: "status", old: report(""), new: report("")}, path: PathStatus, want: allowed,
		},
		"another namespace": {
			world: held(), ask: ask{namespace: ptr.To("other"), old: report(""), new: report("")}, want: allowed,
		},
		"a cluster-scoped object under an own-namespace guard": {
			world: held(), ask: ask{namespace: ptr.To(""), old: report(""), new: report("")}, want: allowed,
		},
		"a cluster-scoped object under a wide guard": {
			world: with(wide(map[string]string{"a": "b"})), ask: ask{namespace: ptr.To(""), old: report(""), new: report("")}, want: "MissingToken", reads: 1,
		},
		"a namespace that a wide guard selects": {
			world: inNamespaces(with(wide(map[string]string{"a": "b"})), labels.Set{"a": "b"}),
			ask:   ask{namespace: ptr.To("other"), old: report(""), new: report("")}, want: "MissingToken", reads: 1,
		},
		"a namespace that a wide guard does not select": {
			world: inNamespaces(with(wide(map[string]string{"a": "b"})), labels.Set{}),
			ask:   ask{namespace: ptr.To("other"), old: report(""), new: report("")}, want: allowed,
		},
		"a namespace whose labels cannot be read": {
			world: with(wide(map[string]string{"a": "b"})),
			ask:   ask{namespace: ptr.To("other"), old: report(""), new: report("")}, want: "503",
		},
		"kube-system is never reached by a wide guard": {
			world: with(wide(nil)), ask: ask{namespace: ptr.To("kube-system"), old: report(""), new: report("")}, want: allowed,
		},
		"an object that leaves the selector": {
			world: with(selects(map[string]string{"a": "b"})),
			ask:   ask{old: report("", meta("labels", map[string]any{"a": "b"})), new: report("")}, want: "MissingToken", reads: 1,
		},
		"an object outside the selector": {
			world: with(selects(map[string]string{"a": "b"})), ask: ask{old: report(""), new: report("")}, want: allowed,
		},
		"the lease is gone": {
			world: &world{cached: []*v1alpha1.FencedLease{lease()}}, ask: ask{old: report(stale), new: report(stale)}, want: allowed, reads: 1,
		},
		"the guard has gone from the lease a moment ago": {
			world: stored(held(), func(l *v1alpha1.FencedLease) { l.Spec.Guards = nil }),
			ask:   ask{old: report(stale), new: report(stale, value("y"))}, want: allowed, reads: 1,
		},
		"no quorum and a token that may be current": {
			world: unreadable(held()), ask: ask{old: report(stale), new: report(current)}, want: "503", reads: 1,
		},
		"no quorum and a token that the cached lease proves stale": {
			world: unreadable(held()), ask: ask{old: report(""), new: report(stale)}, want: "StaleToken",
		},
		"no quorum and no token": {
			world: unreadable(held()), ask: ask{old: report(""), new: report("")}, want: "503", reads: 1,
		},
		"a replica that has not seen the guards yet": {
			world: &world{waitError: context.DeadlineExceeded}, ask: ask{old: report(""), new: report("")}, want: "503",
		},
		"connect": {
			world: held(), ask: ask{operation: "CONNECT"}, want: "503",
		},
		"an unknown operation": {
			world: held(), ask: ask{operation: "PROXY", old: report(""), new: report("")}, want: "503",
		},
		"an unknown subresource": {
			world: held(), ask: ask{subresource: "approval", old: report(""), new: report("")}, want: "503",
		},
		"update without an old object": {
			world: held(), ask: ask{new: report(current)}, want: "503",
		},
		"delete without an old object": {
			world: held(), ask: ask{operation: "DELETE"}, want: "503",
		},
		"two leases, one of them stale": {
			world: twoLeases(), ask: ask{old: report(stale), new: report(current)}, want: "MissingToken", reads: 2,
		},
		"a panic refuses": {
			world: &world{panics: true}, ask: ask{old: report(""), new: report("")}, want: "500",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := tt.path
			if path == "" {
				path = PathGuarded
			}
			answer := post(t, tt.world, Path(path, "100", tt.audit)+"?timeout=5s", tt.ask.review(t))
			if diff := cmp.Diff(tt.want, outcomeOf(answer)); diff != "" {
				t.Errorf("answer (-want +got):\n%s\n%+v", diff, answer.Result)
			}
			if tt.world.reads != tt.reads {
				t.Errorf("want %d linearizable reads, got %d", tt.reads, tt.world.reads)
			}
			if answer.UID != "r1" {
				t.Errorf("the answer is for review %q", answer.UID)
			}
		})
	}
}

func outcomeOf(answer *admissionv1.AdmissionResponse) string {
	switch {
	case answer.Allowed:
		return "allowed"
	case answer.Result.Code == http.StatusForbidden && len(answer.Result.Details.Causes) >= 1:
		return string(answer.Result.Details.Causes[0].Type)
	default:
		return code(answer.Result.Code)
	}
}

func code(c int32) string {
	switch c {
	case http.StatusServiceUnavailable:
		return "503"
	case http.StatusInternalServerError:
		return "500"
	case http.StatusBadRequest:
		return "400"
	default:
		return http.StatusText(int(c))
	}
}

func scaled(w *world, version, mark string) *world {
	w.objects = map[string]*metav1.PartialObjectMetadata{"daily": {ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: version, Annotations: map[string]string{key: mark},
	}}}
	return w
}

func bypass(w *world, may bool) *world { w.mayBypass = may; return w }

func bypassError(w *world) *world { w.permissionErr = errors.New("no answer"); return w }

func unreadable(w *world) *world { w.readError = errors.New("no quorum"); return w }

func inNamespaces(w *world, set labels.Set) *world {
	w.namespaces = map[string]labels.Set{"other": set}
	return w
}

func twoLeases() *world {
	second := func(l *v1alpha1.FencedLease) { l.Name = "auditor" }
	return &world{
		cached: []*v1alpha1.FencedLease{lease(), lease(second)},
		stored: []*v1alpha1.FencedLease{lease(), lease(second)},
	}
}

func override(reason string) map[string]authenticationv1.ExtraValue {
	return map[string]authenticationv1.ExtraValue{"override.fencedlease.io/report-writer": {reason}}
}

func TestMalformedCallsAreRefused(t *testing.T) {
	t.Parallel()
	review := ask{old: report(""), new: report("")}.review(t)
	tests := map[string]struct {
		body []byte
		want string
	}{
		"an empty body":               {nil, "400"},
		"no JSON":                     {[]byte("{"), "400"},
		"an object that is no object": {bytes.Replace(review, []byte(`"metadata":{`), []byte(`"metadata":[],"x":{`), 1), "400"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := outcomeOf(post(t, held(), PathGuarded+"100", tt.body)); got != tt.want {
				t.Errorf("want %s, got %s", tt.want, got)
			}
		})
	}
}

func TestFieldNamesAreExact(t *testing.T) {
	t.Parallel()
	// A custom resource that preserves unknown fields may carry a field Metadata: it must not stand in for metadata.
	smuggled := report(stale)
	smuggled["Metadata"] = map[string]any{"annotations": map[string]any{key: current}}
	if got := outcomeOf(post(t, held(), PathGuarded+"100", ask{old: report(current), new: smuggled}.review(t))); got != "StaleToken" {
		t.Errorf("want StaleToken, got %s", got)
	}
}

func TestPathNeedsAVersion(t *testing.T) {
	t.Parallel()
	for _, path := range []string{PathGuarded, PathGuarded + "x", PathStatus + "1/2"} {
		recorder := httptest.NewRecorder()
		serve(held()).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader("{}")))
		if recorder.Code != http.StatusNotFound {
			t.Errorf("%s: want 404, got %d", path, recorder.Code)
		}
	}
}

func TestDenialIsAContract(t *testing.T) {
	t.Parallel()
	answer := post(t, held(), PathGuarded+"100", ask{old: report(current), new: report(stale)}.review(t))
	message := "FencedLease reports/report-writer: token presented 33.aaaaaaaa/9 is stale: the object was last written under 34.bbbbbbbb/1; " +
		"\"worker-b\" holds generation 34, token needed 34.bbbbbbbb. " +
		"The term of this token has ended: drop the result, acquire the lease again and compute anew"
	want := &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: "Fenced", Message: message,
		Details: &metav1.StatusDetails{
			Name: "daily", Group: "example.com", Kind: "reports",
			Causes: []metav1.StatusCause{{
				Type: "StaleToken", Message: message, Field: "metadata.annotations[token.fencedlease.io/report-writer]",
			}},
		},
	}
	if diff := cmp.Diff(want, answer.Result); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"verdict": "reports/report-writer=StaleToken"}, answer.AuditAnnotations); diff != "" {
		t.Errorf("audit annotations (-want +got):\n%s", diff)
	}
}

func TestARepetitionIsToldTheRecord(t *testing.T) {
	t.Parallel()
	records := func(o map[string]any) {
		if m, ok := o["metadata"].(map[string]any); ok {
			m["annotations"] = map[string]any{key: current, v1alpha1.OperationsKey("report-writer"): "17=33@2026-05-04T10:11:12Z"}
		}
	}
	for _, dryRun := range []bool{false, true} {
		answer := post(t, held(), PathGuarded+"100", ask{old: report("", records), new: report("34.bbbbbbbb/17"), dryRun: dryRun}.review(t))
		message := "FencedLease reports/report-writer: operation \"17\" was applied under generation 33 at 2026-05-04T10:11:12Z, so this write is not applied; " +
			"\"worker-b\" holds generation 34, token needed 34.bbbbbbbb. " +
			"Take it for done and read the object; a write that is to be applied needs an operation of its own"
		want := []metav1.StatusCause{
			{Type: "AlreadyApplied", Message: message, Field: "metadata.annotations[token.fencedlease.io/report-writer]"},
			{Type: "OperationRecord", Message: "17=33@2026-05-04T10:11:12Z", Field: "metadata.annotations[operations.fencedlease.io/report-writer]"},
		}
		if diff := cmp.Diff(want, answer.Result.Details.Causes); diff != "" || answer.Result.Code != http.StatusForbidden || answer.Result.Reason != "Fenced" {
			t.Errorf("dry run %v: %d %s, causes (-want +got):\n%s", dryRun, answer.Result.Code, answer.Result.Reason, diff)
		}
	}
}

func TestAuditTellsTheClient(t *testing.T) {
	t.Parallel()
	answer := post(t, with(audit), PathGuarded+"100", ask{old: report(current), new: report(stale)}.review(t))
	if len(answer.Warnings) != 1 || !strings.HasPrefix(answer.Warnings[0], "would be refused (StaleToken) if not in Audit: ") || len(answer.Warnings[0]) > 256 {
		t.Errorf("warnings: %q", answer.Warnings)
	}
}

func TestObserverHearsOfWritesOnly(t *testing.T) {
	t.Parallel()
	for _, dryRun := range []bool{false, true} {
		w := bypass(held(), true)
		post(t, w, PathGuarded+"100", ask{old: report(stale), new: report("35.cccccccc/1"), dryRun: dryRun}.review(t))
		post(t, w, PathGuarded+"100", ask{old: report(current), new: report(current), extra: override("x"), dryRun: dryRun}.review(t))
		want := 1
		if dryRun {
			want = 0
		}
		if w.ahead != want || w.overridden != want {
			t.Errorf("dry run %v: want %d of each, got ahead %d, overridden %d", dryRun, want, w.ahead, w.overridden)
		}
	}
}
