// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fenced_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/test/env"
)

// The service account of this test has the rights of its writes only.
func TestClientFencesEveryVerb(t *testing.T) {
	s := begin(t)
	worker := s.worker(t, fenced.Rules{})
	var sent atomic.Int64
	below := newClient(t, counting(worker, &sent))
	a := s.take(t, "a")
	byA := runtimeVerbs(fenced.Client(below, a))
	names := make([]string, len(byA))
	for i, v := range byA {
		names[i] = newName()
		if !v.creates {
			names[i] = s.create(t, a, named)
		}
	}
	b := s.take(t, "b")
	byB := runtimeVerbs(fenced.Client(below, b))
	for i := range byA {
		t.Run(byA[i].name, func(t *testing.T) {
			if byA[i].byRequestOnly {
				before := sent.Load()
				var cannot *fenced.CannotStampError
				if err := byB[i].do(t.Context(), s, names[i]); !errors.As(err, &cannot) || !strings.Contains(err.Error(), "fenced.Wrap") {
					t.Errorf("error is %v", err)
				}
				if writes := sent.Load() - before; writes != 0 {
					t.Errorf("%d writes have left", writes)
				}
				return
			}
			s.wantFenced(t, byA[i].do(t.Context(), s, names[i]), fenced.StaleToken)
			if err := byB[i].do(t.Context(), s, names[i]); err != nil {
				t.Fatalf("with the current token: %v", err)
			}
			s.written(t, byB[i], names[i], b.token.String())
			name := newName()
			if !byA[i].creates {
				name = s.create(t, b, named)
			}
			s.wantFenced(t, byA[i].do(t.Context(), s, name), fenced.StaleToken)
			// The mark is the same as before where the write was a status; every one must present a token of its own.
			if !byA[i].creates && !byA[i].deletes {
				for range 2 {
					if err := byB[i].do(t.Context(), s, name); err != nil {
						t.Errorf("once more with the current token: %v", err)
					}
				}
			}
		})
	}
}

func TestClientSendsNothingAfterTheEnd(t *testing.T) {
	s := begin(t)
	a := s.take(t, "a")
	var writes atomic.Int64
	c := fenced.Client(newClient(t, counting(s.worker(t, fenced.Rules{}), &writes)), a)
	name := s.create(t, a, named)
	a.end()
	s.take(t, "a")
	before := writes.Load()
	for _, v := range runtimeVerbs(c) {
		err := v.do(t.Context(), s, name)
		if !errors.Is(err, fenced.ErrTermEnded) {
			t.Errorf("%s: %v", v.name, err)
		}
		s.wantFenced(t, err, fenced.TermEnded)
	}
	if err := c.Create(t.Context(), &corev1.ConfigMap{}); !errors.Is(err, fenced.ErrTermEnded) {
		t.Errorf("a kind without a guard: %v", err)
	}
	if sent := writes.Load() - before; sent != 0 {
		t.Errorf("%d writes have left", sent)
	}
}

func TestAnAnnotatedWriteOnItsWayIsRefusedByTheServer(t *testing.T) {
	s := begin(t)
	a := s.take(t, "a")
	name := s.create(t, a)
	for _, v := range runtimeVerbs(admin) {
		if v.byRequestOnly || v.creates {
			continue
		}
		left, arrive := make(chan struct{}), make(chan struct{})
		var held atomic.Bool
		config := cluster.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transportFunc(func(req *http.Request) (*http.Response, error) {
				if req.Method != http.MethodGet && held.CompareAndSwap(false, true) {
					close(left)
					<-arrive
				}
				return next.RoundTrip(req)
			})
		})
		holder := s.take(t, "holder")
		for _, late := range runtimeVerbs(fenced.Client(newClient(t, config), holder)) {
			if late.name != v.name {
				continue
			}
			answer := make(chan error, 1)
			go func() { answer <- late.do(t.Context(), s, name) }()
			<-left
			holder.end()
			s.take(t, "next")
			close(arrive)
			s.wantFenced(t, <-answer, fenced.StaleToken)
		}
	}
	if s.gone(t, name) {
		t.Error("the object is gone")
	}
}

func TestTheCallersObject(t *testing.T) {
	s := begin(t)
	a := s.take(t, "a")
	stale := fenced.Client(admin, a)
	b := s.take(t, "b")
	current := fenced.Client(admin, b)

	t.Run("holds the server's answer", func(t *testing.T) {
		o := s.typed(newName())
		if err := current.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		created := o.ResourceVersion
		if o.UID == "" || !isOf(o.Annotations[s.key()], b.token.String()) {
			t.Errorf("after create: %+v", o)
		}
		o.Spec.Value = "next"
		if err := current.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if o.ResourceVersion == created {
			t.Errorf("after update: %+v", o)
		}
		o.Status.Phase = "Done"
		if err := current.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		stored := s.get(t, o.Name)
		if o.Status.Phase != "Done" || o.Annotations[s.key()] != stored.GetAnnotations()[s.key()] || o.ResourceVersion != stored.GetResourceVersion() {
			t.Errorf("after status update: %+v, stored %v", o, stored)
		}
		configuration := s.configuration(o.Name)
		configuration.Status = &ReportStatus{Phase: "Applied"}
		if err := current.Status().Apply(t.Context(), configuration, owner, client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
		if configuration.UID == nil || *configuration.UID != o.UID || configuration.Spec == nil || configuration.Spec.Value != "next" {
			t.Errorf("after apply: %+v", configuration)
		}
		u := s.object(o.Name)
		u.Object["spec"] = map[string]any{"value": "unstructured"}
		if err := current.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), owner, client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
		if u.GetUID() != o.UID {
			t.Errorf("after apply of an unstructured configuration: %v", u)
		}
	})

	t.Run("is as it was after a refusal", func(t *testing.T) {
		name := s.create(t, b)
		for what, annotations := range map[string]map[string]string{
			"without annotations": nil, "with others": {"x": "y"}, "as it was read": s.get(t, name).GetAnnotations(),
		} {
			for _, o := range []client.Object{s.typed(name), s.object(name)} {
				o.SetAnnotations(annotations)
				o.SetResourceVersion(s.get(t, name).GetResourceVersion())
				before := o.DeepCopyObject()
				configuration := s.configuration(name)
				s.wantFenced(t, stale.Update(t.Context(), o), fenced.StaleToken)
				s.wantFenced(t, stale.Status().Update(t.Context(), o), fenced.StaleToken)
				s.wantFenced(t, stale.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, mergeValue)), fenced.StaleToken)
				s.wantFenced(t, stale.Delete(t.Context(), o), fenced.StaleToken)
				s.wantFenced(t, stale.Apply(t.Context(), configuration, owner, client.ForceOwnership), fenced.StaleToken)
				if diff := cmp.Diff(before, o); diff != "" {
					t.Errorf("%s: %s", what, diff)
				}
				if diff := cmp.Diff(s.configuration(name), configuration); diff != "" {
					t.Errorf("apply configuration: %s", diff)
				}
			}
		}
	})

	t.Run("shares no map with others", func(t *testing.T) {
		o := s.typed(s.create(t, b))
		shared := map[string]string{"x": "y"}
		o.Annotations = shared
		s.wantFenced(t, stale.Create(t.Context(), o), fenced.StaleToken)
		if len(shared) != 1 {
			t.Errorf("the map is %v", shared)
		}
	})
}

func TestJSONPatchOfAnObjectWithoutAnnotations(t *testing.T) {
	s := &story{namespace: cluster.CreateNamespace(t)}
	var names []string
	for range 5 {
		names = append(names, newName())
		if err := admin.Create(t.Context(), env.NewReport(s.namespace, names[len(names)-1], "bare")); err != nil {
			t.Fatal(err)
		}
	}
	s.lease = newLease(t, s.namespace, "report-writer")
	a := s.take(t, "a")
	stale := fenced.Client(admin, a)
	b := s.take(t, "b")
	current := fenced.Client(admin, b)

	patch := func(data string) client.Patch { return client.RawPatch(types.JSONPatchType, []byte(data)) }
	s.wantFenced(t, stale.Patch(t.Context(), s.object(names[0]), patch(string(jsonValue))), fenced.StaleToken)
	if err := current.Patch(t.Context(), s.object(names[0]), patch(string(jsonValue))); err != nil {
		t.Fatal(err)
	}
	if o := s.get(t, names[0]); !isOf(o.GetAnnotations()[s.key()], b.token.String()) {
		t.Errorf("annotations are %v", o.GetAnnotations())
	}
	s.wantFenced(t, stale.Status().Patch(t.Context(), s.object(names[1]), patch(string(jsonPhase))), fenced.StaleToken)
	if err := current.Status().Patch(t.Context(), s.object(names[1]), patch(string(jsonPhase))); err != nil {
		t.Fatal(err)
	}
	// A patch that adds the map itself, and one that empties it.
	if err := current.Patch(t.Context(), s.object(names[2]), patch(`[{"op":"add","path":"/metadata/annotations","value":{"x":"y"}}]`)); err != nil {
		t.Fatal(err)
	}
	if err := current.Patch(t.Context(), s.object(names[2]), patch(`[{"op":"remove","path":"/metadata/annotations"}]`)); err != nil {
		t.Fatal(err)
	}
	want := []string{s.key()}
	if o := s.get(t, names[2]); len(o.GetAnnotations()) != 1 || !isOf(o.GetAnnotations()[want[0]], b.token.String()) {
		t.Errorf("annotations are %v", o.GetAnnotations())
	}
	// What is wrong with the caller's own operations is told as it is.
	err := current.Patch(t.Context(), s.object(names[3]), patch(`[{"op":"add","path":"/metadata/annotations/x","value":"y"}]`))
	if !apierrors.IsInvalid(err) {
		t.Errorf("error is %v", err)
	}
}

func TestApplyNeedsForceWhereAnotherManagerWroteTheMark(t *testing.T) {
	s := begin(t)
	a := s.take(t, "a")
	c := fenced.Client(admin, a)
	name := newName()
	apply := func(opts ...client.ApplyOption) error {
		configuration := s.configuration(name)
		configuration.Spec = &ReportSpec{Value: "applied"}
		return c.Apply(t.Context(), configuration, append(opts, owner)...)
	}
	for range 3 {
		if err := apply(); err != nil {
			t.Fatalf("its own mark: %v", err)
		}
	}
	if err := c.Patch(t.Context(), s.object(name), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))); err != nil {
		t.Fatal(err)
	}
	if err := apply(); !apierrors.IsConflict(err) || fenced.IsFenced(err) {
		t.Errorf("the mark of a patch: %v", err)
	}
	if err := apply(client.ForceOwnership); err != nil {
		t.Errorf("with force: %v", err)
	}
}

func TestClientLeavesOtherObjectsAlone(t *testing.T) {
	s := begin(t)
	c := fenced.Client(admin, s.take(t, "a"))
	elsewhere := cluster.CreateNamespace(t)
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: newName()}
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta}, &Report{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: newName()}},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		o.SetLabels(map[string]string{"a": "b"})
		if err := c.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if err := c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"c"}}}`))); err != nil {
			t.Fatal(err)
		}
		if annotations := o.GetAnnotations(); len(annotations) != 0 {
			t.Errorf("annotations are %v", annotations)
		}
		if err := c.DeleteAllOf(t.Context(), o, client.InNamespace(o.GetNamespace()), client.MatchingLabels{"a": "c"}); err != nil {
			t.Fatal(err)
		}
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("after DeleteAllOf: %v", err)
		}
	}
}

// between returns a client of the administrator that calls a function once, before the nth write.
func between(t testing.TB, n int64, call func()) client.Client {
	t.Helper()
	var writes atomic.Int64
	config := cluster.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transportFunc(func(req *http.Request) (*http.Response, error) {
			if req.Method != http.MethodGet && writes.Add(1) == n {
				call()
			}
			return next.RoundTrip(req)
		})
	})
	return newClient(t, config)
}

func TestClientDelete(t *testing.T) {
	s := begin(t)
	a := s.take(t, "a")
	stale := fenced.Client(admin, a)
	b := s.take(t, "b")
	var writes atomic.Int64
	c := fenced.Client(newClient(t, counting(cluster.Config(), &writes)), b)
	deleted := func(t *testing.T, name string, err error) {
		t.Helper()
		if err != nil || !s.gone(t, name) {
			t.Errorf("gone %v, error %v", s.gone(t, name), err)
		}
	}
	finalized := func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/hold"}) }
	intent := func(t *testing.T, name string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+s.key()+`":"`+b.token.String()+`/delete"}}}`))
		if err := admin.Patch(t.Context(), s.object(name), patch); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("sends two requests", func(t *testing.T) {
		name := s.create(t, b)
		before := writes.Load()
		deleted(t, name, c.Delete(t.Context(), s.typed(name)))
		if sent := writes.Load() - before; sent != 2 {
			t.Errorf("sent %d", sent)
		}
	})
	t.Run("takes unstructured objects and metadata, and leaves them as they are", func(t *testing.T) {
		name, other := s.create(t, b), s.create(t, b)
		o := s.get(t, name)
		before := o.DeepCopy()
		deleted(t, name, c.Delete(t.Context(), o))
		if diff := cmp.Diff(before, o); diff != "" {
			t.Error(diff)
		}
		partial := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: other}}
		partial.SetGroupVersionKind(env.ReportKind(env.ReportVersion))
		deleted(t, other, c.Delete(t.Context(), partial))
	})
	t.Run("of what is not there is not found", func(t *testing.T) {
		if err := c.Delete(t.Context(), s.typed("none")); !apierrors.IsNotFound(err) {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("is refused to a stale token, also where the intent is stored", func(t *testing.T) {
		name := s.create(t, b)
		s.wantFenced(t, stale.Delete(t.Context(), s.typed(name)), fenced.StaleToken)
		intent(t, name)
		s.wantFenced(t, stale.Delete(t.Context(), s.typed(name)), fenced.StaleToken)
		if s.gone(t, name) {
			t.Error("the object is gone")
		}
	})
	t.Run("finds its own intent stored", func(t *testing.T) {
		name, read := s.create(t, b), s.create(t, b)
		intent(t, name)
		deleted(t, name, c.Delete(t.Context(), s.typed(name)))
		intent(t, read)
		before := writes.Load()
		deleted(t, read, c.Delete(t.Context(), s.get(t, read)))
		if sent := writes.Load() - before; sent != 1 {
			t.Errorf("sent %d requests for an object that was read with the intent", sent)
		}
	})
	t.Run("finds that the intent it has read was overwritten", func(t *testing.T) {
		name := s.create(t, b)
		intent(t, name)
		read := s.get(t, name)
		if err := fenced.Client(admin, b).Update(t.Context(), read.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		deleted(t, name, c.Delete(t.Context(), read))
	})
	t.Run("of a terminating object writes once, however often it is asked", func(t *testing.T) {
		name := s.create(t, b, finalized)
		version := ""
		for i := range 4 {
			if err := c.Delete(t.Context(), s.typed(name)); err != nil {
				t.Fatal(err)
			}
			o := s.get(t, name)
			if o.GetDeletionTimestamp() == nil || i > 0 && o.GetResourceVersion() != version {
				t.Errorf("deletion time %v, version %s after %s", o.GetDeletionTimestamp(), o.GetResourceVersion(), version)
			}
			version = o.GetResourceVersion()
		}
		release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		deleted(t, name, c.Patch(t.Context(), s.object(name), release))
	})
	t.Run("passes on how to propagate", func(t *testing.T) {
		name := s.create(t, b)
		if err := c.Delete(t.Context(), s.typed(name), client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
			t.Fatal(err)
		}
		if o := s.get(t, name); o.GetDeletionTimestamp() == nil || len(o.GetFinalizers()) != 1 {
			t.Errorf("finalizers are %v", o.GetFinalizers())
		}
	})
	t.Run("keeps to the caller's conditions", func(t *testing.T) {
		name := s.create(t, b)
		o := s.get(t, name)
		uid, version, other := o.GetUID(), o.GetResourceVersion(), types.UID("2d7d4b58-0000-4000-8000-000000000000")
		for what, p := range map[string]client.Preconditions{
			"uid": {UID: &other}, "version": {UID: &uid, ResourceVersion: new("1")},
		} {
			if err := c.Delete(t.Context(), s.typed(name), p); !apierrors.IsConflict(err) || fenced.IsFenced(err) {
				t.Errorf("another %s: %v", what, err)
			}
			if got := s.get(t, name); got.GetResourceVersion() != version {
				t.Errorf("another %s: the object was written", what)
			}
		}
		conditions := client.Preconditions{UID: &uid, ResourceVersion: &version}
		deleted(t, name, c.Delete(t.Context(), s.typed(name), conditions))
		if *conditions.ResourceVersion != version {
			t.Error("the caller's conditions have changed")
		}
	})
	t.Run("keeps to the caller's version where the intent is stored", func(t *testing.T) {
		name := s.create(t, b)
		intent(t, name)
		version := s.get(t, name).GetResourceVersion()
		if err := c.Delete(t.Context(), s.typed(name), client.Preconditions{ResourceVersion: new("1")}); !apierrors.IsConflict(err) {
			t.Errorf("another version: %v", err)
		}
		deleted(t, name, c.Delete(t.Context(), s.typed(name), client.Preconditions{ResourceVersion: &version}))
	})
	t.Run("begins anew when the object is written in between, unless the version matters", func(t *testing.T) {
		for _, conditioned := range []bool{false, true} {
			name := s.create(t, b)
			crossed := between(t, 2, func() {
				if err := fenced.Client(admin, b).Patch(t.Context(), s.object(name), client.RawPatch(types.MergePatchType, mergeValue)); err != nil {
					t.Error(err)
				}
			})
			var opts []client.DeleteOption
			if conditioned {
				opts = append(opts, client.Preconditions{ResourceVersion: new(s.get(t, name).GetResourceVersion())})
			}
			err := fenced.Client(crossed, b).Delete(t.Context(), s.typed(name), opts...)
			if conditioned {
				if !apierrors.IsConflict(err) || s.gone(t, name) {
					t.Errorf("error is %v", err)
				}
				continue
			}
			deleted(t, name, err)
		}
	})
	t.Run("is refused when another takes over and writes in between", func(t *testing.T) {
		holder := s.take(t, "holder")
		name := s.create(t, holder)
		crossed := between(t, 2, func() {
			next := s.take(t, "next")
			if err := fenced.Client(admin, next).Patch(t.Context(), s.object(name), client.RawPatch(types.MergePatchType, mergeValue)); err != nil {
				t.Error(err)
			}
		})
		s.wantFenced(t, fenced.Client(crossed, holder).Delete(t.Context(), s.typed(name)), fenced.StaleToken)
		if s.gone(t, name) {
			t.Error("the object is gone")
		}
	})
	t.Run("as a dry run changes nothing", func(t *testing.T) {
		holder := s.take(t, "holder")
		for _, stored := range []bool{false, true} {
			name := s.create(t, holder, func(o *unstructured.Unstructured) {
				if stored {
					o.SetAnnotations(map[string]string{s.key(): holder.token.String() + "/delete"})
				}
			})
			before := s.get(t, name)
			if err := fenced.Client(admin, holder).Delete(t.Context(), s.typed(name), client.DryRunAll); err != nil {
				t.Error(err)
			}
			s.wantFenced(t, stale.Delete(t.Context(), s.typed(name), client.DryRunAll), fenced.StaleToken)
			if diff := cmp.Diff(before, s.get(t, name)); diff != "" {
				t.Error(diff)
			}
		}
	})
}

func TestDeleteWithOneOfTwoIntentsStored(t *testing.T) {
	s := begin(t)
	other := &story{namespace: s.namespace, lease: newLease(t, s.namespace, "other")}
	one, two := s.take(t, "a"), other.take(t, "x")
	both := fenced.Client(fenced.Client(admin, one), two)
	for _, conditioned := range []bool{false, true} {
		o := s.typed(newName())
		o.Annotations = map[string]string{s.key(): one.token.String() + "/delete", other.key(): two.token.String() + "/created"}
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		var opts []client.DeleteOption
		if conditioned {
			opts = append(opts, client.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion})
		}
		if err := both.Delete(t.Context(), s.typed(o.Name), opts...); err != nil || !s.gone(t, o.Name) {
			t.Errorf("conditioned %v: error %v", conditioned, err)
		}
	}
}

func TestDeleteGivesUpWhereOthersKeepWriting(t *testing.T) {
	s := begin(t)
	a := s.take(t, "a")
	name := s.create(t, a)
	config := cluster.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transportFunc(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodDelete {
				if err := fenced.Client(admin, a).Patch(req.Context(), s.object(name), client.RawPatch(types.MergePatchType, []byte(`{}`))); err != nil {
					t.Error(err)
				}
			}
			return next.RoundTrip(req)
		})
	})
	err := fenced.Client(newClient(t, config), a).Delete(t.Context(), s.typed(name))
	if err == nil || !strings.Contains(err.Error(), "which others keep writing") {
		t.Errorf("error is %v", err)
	}
}
