//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
	"github.com/fencedlease/fencedlease/test/env"
)

// stamps shows what a stamp of a seal is, and that nothing else is one: the webhook of these tests fails while it is down, as
// a real one does.
func stamps(s *suite, _ *running) {
	namespace, open := s.env.CreateNamespace(s), s.env.CreateNamespace(s)
	s.awaitReady(s.createLease(env.NewLease(namespace, "writer")))
	statusOnly := s.env.CreateNamespace(s)
	s.awaitReady(s.createLease(env.NewLease(statusOnly, "writer", func(l *v1alpha1.FencedLease) {
		l.Spec.Guards[0].Resources = []string{"reports/status"}
	})))
	key := v1alpha1.TokenKey("writer")
	const token = "35.bbbbbbbb"
	manager := func(token string) client.PatchOption { return client.FieldOwner(seal.FieldManager("writer", token)) }
	conditioned := func(o client.Object) string {
		return `{"metadata":{"resourceVersion":"` + o.GetResourceVersion() + `"}}`
	}
	other := s.carrying(nil)

	for i, test := range []struct {
		name      string
		namespace string
		stored    string
		as        client.Client
		token     string
		patch     func(client.Object) string
		want      string
		called    bool
		refused   bool
	}{
		{name: "the manager's stamp becomes the mark and calls nobody", stored: "34.aaaaaaaa/1", token: token, want: token},
		{name: "without a mark before", token: token, want: token},
		{name: "conditioned on the uid alone", stored: "34.aaaaaaaa", token: token, want: token, patch: func(o client.Object) string {
			return `{"metadata":{"uid":"` + string(o.GetUID()) + `"}}`
		}},
		{name: "of an object that is guarded by its status alone", namespace: statusOnly, stored: "34.aaaaaaaa", token: token, want: token},
		{name: "with the intent to delete", stored: "34.aaaaaaaa", token: token + "/delete", want: token + "/delete"},
		{name: "over garbage", stored: "nonsense", token: token, want: token},
		{name: "of another term under the same generation", stored: "35.aaaaaaaa", token: token, want: token},
		{name: "a mark of the same term keeps its operation", stored: token + "/7", token: token, want: token + "/7"},
		{name: "a mark that would fall is kept by the mark policy", stored: "36.cccccccc", token: token, want: "36.cccccccc", refused: true},
		{name: "what is no token stamps nothing", stored: "34.aaaaaaaa", token: "nonsense", want: "34.aaaaaaaa", called: true},
		{name: "of another user is a write like any other", stored: "34.aaaaaaaa", as: other, token: token, want: "34.aaaaaaaa", called: true},
		{name: "with another change is marked, and judged like any other write", stored: "34.aaaaaaaa", token: token, want: token, called: true, patch: func(client.Object) string {
			return `{"spec":{"value":"new"}}`
		}},
		{name: "with a label is marked, and judged like any other write", stored: "34.aaaaaaaa", token: token, want: token, called: true, patch: func(client.Object) string {
			return `{"metadata":{"labels":{"a":"b"}}}`
		}},
		{name: "with a finalizer is marked, and judged like any other write", stored: "34.aaaaaaaa", token: token, want: token, called: true, patch: func(client.Object) string {
			return `{"metadata":{"finalizers":["example.com/a"]}}`
		}},
		{name: "without the finalizers is marked, and judged like any other write", stored: "34.aaaaaaaa", token: token, want: token, called: true, patch: func(client.Object) string {
			return `{"metadata":{"finalizers":null}}`
		}},
		{name: "with another annotation is marked, and judged like any other write", stored: "34.aaaaaaaa", token: token, want: token, called: true, patch: func(client.Object) string {
			return `{"metadata":{"annotations":{"example.com/a":"b"}}}`
		}},
		{name: "without an annotation is marked, and judged like any other write", stored: "34.aaaaaaaa", token: token, want: token, called: true, patch: func(client.Object) string {
			return `{"metadata":{"annotations":{"example.com/kept":null}}}`
		}},
		{name: "with another mark is marked, and judged like any other write", stored: "34.aaaaaaaa", token: token, want: token, called: true, patch: func(client.Object) string {
			return `{"metadata":{"annotations":{"token.fencedlease.io/another":"99.aaaaaaaa"}}}`
		}},
		{name: "where nothing is guarded nothing is stamped", namespace: open, stored: "34.aaaaaaaa", token: token, want: "34.aaaaaaaa"},
	} {
		s.T.Run(test.name, func(t *testing.T) {
			s := s.in(t)
			if test.namespace == "" {
				test.namespace = namespace
			}
			if test.as == nil {
				test.as = s.client
			}
			if test.patch == nil {
				test.patch = conditioned
			}
			o := env.NewReport(test.namespace, "stamped-"+strconv.Itoa(i), "v")
			o.SetFinalizers([]string{"example.com/kept"})
			o.SetAnnotations(map[string]string{"example.com/kept": "yes"})
			if test.stored != "" {
				o.SetAnnotations(map[string]string{"example.com/kept": "yes", key: test.stored})
			}
			s.must(s.client.Create(t.Context(), o))
			before := o.DeepCopy()
			s.hook.take()
			s.hook.down(true)
			defer s.hook.down(false)
			write := func() error {
				return test.as.Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(test.patch(before))), manager(test.token))
			}
			err := write()
			called := len(s.hook.take()) > 0
			switch {
			case test.called && (!called || !apierrors.IsInternalError(err)):
				t.Errorf("got %v, want the webhook to be called, which is down", err)
			case !test.called && called:
				t.Errorf("the webhook was called")
			case test.refused && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), MarksName)):
				t.Errorf("got %v, want a refusal by the mark policy", err)
			case !test.called && !test.refused && err != nil:
				t.Errorf("stamp: %v", err)
			}
			s.refresh(o)
			if test.called {
				// The webhook admits everything when it is up, so this is what the policy leaves of it.
				s.hook.down(false)
				s.must(write())
				s.refresh(o)
			}
			if got := o.GetAnnotations()[key]; got != test.want {
				t.Errorf("mark is %q, want %q", got, test.want)
			}
			if test.called {
				return
			}
			for _, field := range o.GetManagedFields() {
				if field.Manager == seal.FieldManager("writer", test.token) {
					t.Errorf("the stamp owns %s (F-19)", field.FieldsV1.GetRawString())
				}
			}
			withoutMark := func(o *unstructured.Unstructured) map[string]any {
				o = o.DeepCopy()
				annotations := o.GetAnnotations()
				delete(annotations, key)
				o.SetAnnotations(annotations)
				o.SetResourceVersion("")
				return o.Object
			}
			if diff := cmp.Diff(withoutMark(before), withoutMark(o)); diff != "" {
				t.Errorf("changed by the stamp (-want +got):\n%s", diff)
			}
			if moved := o.GetResourceVersion() != before.GetResourceVersion(); moved != (test.stored != test.want) {
				t.Errorf("the revision moved: %v", moved)
			}
		})
	}
	s.T.Run("a stamp that is conditioned on an old version is a conflict", func(t *testing.T) {
		s := s.in(t)
		o := s.report(namespace, "moved", map[string]string{key: "34.aaaaaaaa"})
		old := conditioned(o)
		s.must(s.client.Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":"new"}}`))))
		if err := s.client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(old)), manager(token)); !apierrors.IsConflict(err) {
			t.Errorf("got %v, want a conflict", err)
		}
	})
	s.deleteLeases(namespace, statusOnly)
}
