// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fencedmanager_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/leader/fencedmanager"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
)

func TestManager(t *testing.T) {
	s := newSuite(t)
	for _, carrier := range []fencedmanager.Carrier{fencedmanager.CarrierRequest, fencedmanager.CarrierAnnotation} {
		t.Run(string(carrier), func(t *testing.T) {
			options := fencedmanager.Options{Carrier: carrier}
			t.Run("a reconciler writes objects, status and children under its term", func(t *testing.T) { s.in(t).reconciles(options) })
			t.Run("a manager that ends releases, and its client writes nothing more", func(t *testing.T) { s.in(t).handsOver(options) })
			t.Run("an operation is applied once, and its repetition succeeds", func(t *testing.T) { s.in(t).repeats(options) })
			t.Run("a manager that was paused is refused", func(t *testing.T) { s.in(t).isPaused(options) })
		})
	}
	// Field report F-26.
	t.Run("the first reconcile sees what the last leader wrote", func(t *testing.T) {
		s.in(t).firstReconcile(fencedmanager.Options{}, "last of a")
	})
	t.Run("without the barrier it acts on an old cache", func(t *testing.T) {
		s.in(t).firstReconcile(fencedmanager.Options{WithoutBarrier: true}, "first of a")
	})
}

// report creates a Report by a manager that leads.
func (s *suite) report(o *operator, value string) *unstructured.Unstructured {
	s.Helper()
	report := env.NewReport(o.namespace(), "daily", value)
	s.must(o.GetClient().Create(s.Context(), report))
	return report
}

func (o *operator) namespace() string {
	term, _ := o.Term()
	return term.Namespace
}

// marks returns the generations of the marks on an object and on its Page.
func (s *suite) marks(report *unstructured.Unstructured) []int64 {
	s.Helper()
	page := object(pageKind)
	page.SetNamespace(report.GetNamespace())
	page.SetName(report.GetName())
	var generations []int64
	for _, o := range []*unstructured.Unstructured{s.read(report), s.read(page)} {
		mark, err := token.Parse(o.GetAnnotations()[v1alpha1.TokenKey(leaseName)])
		s.must(err)
		generations = append(generations, mark.Generation)
	}
	return generations
}

func (s *suite) awaitResult(report *unstructured.Unstructured, value string) {
	s.Helper()
	s.eventually("the result is "+value, func() bool {
		result, _, _ := unstructured.NestedString(s.read(report).Object, "status", "result")
		return result == value
	})
}

func (s *suite) reconciles(options fencedmanager.Options) {
	lease := s.lease()
	a := s.start(lease, "a", options)
	a.awaitElected()
	report := s.report(a, "first")
	s.awaitResult(report, "first")
	term, _ := a.Term()
	if diff := cmp.Diff([]int64{term.Generation, term.Generation}, s.marks(report)); diff != "" {
		s.Errorf("marks (-want +got):\n%s", diff)
	}
}

func (s *suite) handsOver(options fencedmanager.Options) {
	lease := s.lease()
	a := s.start(lease, "a", options)
	a.awaitElected()
	report := s.report(a, "first")
	s.awaitResult(report, "first")
	b := s.start(lease, "b", options)
	a.stop()
	b.awaitElected()
	before, after := ptr.Deref(lease.Status.Generation, 0), int64(0)
	if term, ok := b.Term(); ok {
		after = term.Generation
	}
	if after <= before {
		s.Errorf("generation %d follows %d", after, before)
	}

	sent := a.wire.sent()
	err := a.GetClient().Patch(s.Context(), report.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"value":"late"}}`)))
	if !errors.Is(err, fenced.ErrTermEnded) || !fenced.IsFenced(err) {
		s.Errorf("a write of the ended manager: %v", err)
	}
	if a.wire.sent() != sent {
		s.Error("the write has left the process")
	}
	s.must(b.GetClient().Patch(s.Context(), report, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"value":"second"}}`))))
	s.awaitResult(report, "second")
	if diff := cmp.Diff([]int64{after, after}, s.marks(report)); diff != "" {
		s.Errorf("marks (-want +got):\n%s", diff)
	}
}

// repeats sends an operation twice, and lets the successor send it as well. The client's cache may be behind each time.
func (s *suite) repeats(options fencedmanager.Options) {
	lease := s.lease()
	a := s.start(lease, "a", options)
	a.awaitElected()
	report := s.report(a, "first")
	term, _ := a.Term()
	raise := func(o *operator, value string, wantReplay bool) {
		s.Helper()
		ctx, operation, err := fenced.WithOperation(s.Context(), "raise-1")
		s.must(err)
		written := env.NewReport(report.GetNamespace(), report.GetName(), "")
		s.must(o.GetClient().Patch(ctx, written, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"value":"`+value+`"}}`))))
		if got, _, _ := unstructured.NestedString(written.Object, "spec", "value"); got != "raised" {
			s.Errorf("the write of %s returned value %q", value, got)
		}
		if record, replayed := operation.Replayed(); replayed != wantReplay || replayed && record.Generation != term.Generation {
			s.Errorf("%s: replayed is %t by %s, want %t under generation %d", value, replayed, record, wantReplay, term.Generation)
		}
	}
	raise(a, "raised", false)
	raise(a, "again", true)
	b := s.start(lease, "b", options)
	a.stop()
	b.awaitElected()
	raise(b, "by the successor", true)
	s.awaitResult(report, "raised")
}

func (s *suite) isPaused(options fencedmanager.Options) {
	lease := s.lease()
	a := s.start(lease, "a", options)
	a.awaitElected()
	report := s.report(a, "first")
	s.awaitResult(report, "first")

	a.wire.pause()
	late := make(chan error, 1)
	sent := a.wire.sent()
	go func() {
		late <- a.GetClient().Patch(context.WithoutCancel(s.Context()), report.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"value":"late"}}`)))
	}()
	s.eventually("the late write is on its way", func() bool { return a.wire.sent() > sent })
	b := s.start(lease, "b", options)
	b.awaitElected()
	s.must(b.GetClient().Patch(s.Context(), report, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"value":"second"}}`))))
	a.wire.resume()
	err := <-late
	if refusal, is := fenced.Cause(err); !is || refusal.Type != fenced.StaleToken {
		s.Errorf("the late write: %v", err)
	}
	s.awaitResult(report, "second")
}

// firstReconcile hands over to a replica whose watch is silent, and looks at what its first reconcile reads.
func (s *suite) firstReconcile(options fencedmanager.Options, want string) {
	lease := s.lease()
	a := s.start(lease, "a", options)
	a.awaitElected()
	report := s.report(a, "first of a")
	s.awaitResult(report, "first of a")

	b := s.start(lease, "b", options, func(o *operator) {
		s.must(o.Add(everyReplica(func(ctx context.Context) error {
			_, err := o.GetCache().GetInformer(ctx, object(env.ReportKind(env.ReportVersion)))
			return err
		})))
	})
	s.eventually("the follower's cache is warm", func() bool {
		cached := object(env.ReportKind(env.ReportVersion))
		return b.GetCache().Get(s.Context(), client.ObjectKeyFromObject(report), cached) == nil
	})
	b.wire.silence()
	s.must(a.GetClient().Patch(s.Context(), report, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"value":"last of a"}}`))))
	s.awaitResult(report, "last of a")
	a.stop()
	b.awaitElected()
	if !options.WithoutBarrier {
		// The barrier has asked what there is: from now on the watch may tell it.
		<-b.wire.listed
		b.wire.resume()
	}
	s.eventually("the follower has reconciled", func() bool { return len(b.values()) > 0 })
	if got := b.values()[0]; got != want {
		s.Errorf("the first reconcile has read %q, want %q", got, want)
	}
}

// everyReplica is work that needs no lead.
type everyReplica func(context.Context) error

func (e everyReplica) Start(ctx context.Context) error { return e(ctx) }
func (e everyReplica) NeedLeaderElection() bool        { return false }
