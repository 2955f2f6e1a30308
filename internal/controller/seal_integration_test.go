//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
	"github.com/fencedlease/fencedlease/test/env"
)

// TestSealOnAPIServer runs one story of seals after the other. The webhook admits everything here: what a seal keeps from
// being committed is shown by test/integration/seal.
func TestSealOnAPIServer(t *testing.T) {
	s := newSuite(t)
	metrics := seal.NewMetrics()
	r := s.run(func(o *Options) { o.SealMetrics = metrics })
	for _, story := range []struct {
		name string
		tell func(*suite, *seal.Metrics)
	}{
		{"every guarded object carries the term's mark before the term is sealed", sealsAll},
		{"what a guard selects is sealed, and what comes to be selected is stamped", sealsWhatIsSelected},
		{"cluster-scoped objects are sealed, and several leases on one object", sealsClusterScoped},
		{"what is guarded from the middle of a term on is stamped", sealsWhatIsGuardedLater},
		{"a kind that is not installed keeps nobody waiting", sealsWithoutKind},
		{"a lease without guards is sealed at once", sealsNothing},
		{"a higher mark is left and reported, an implausible one as well", sealsBelowHigherMarks},
		{"a lease that is deleted in the middle of its seal stops it", sealOfDeletedLease},
		{"an object that is created late is told from all others", tellsLateCreates},
	} {
		t.Run(story.name, func(t *testing.T) { story.tell(s.in(t), metrics) })
	}
	t.Run("a replica that ends in the middle of a seal is followed by another one, which stamps the rest", func(t *testing.T) { s.in(t).sealIsResumed(r) })
	t.Run("a missing right is named, and keeps a lease waiting unless it is in Audit", func(t *testing.T) { s.in(t).sealLacksRights(r) })
}

func bySeal(mutations ...func(*v1alpha1.FencedLease)) func(*v1alpha1.FencedLease) {
	return func(l *v1alpha1.FencedLease) {
		l.Spec.Handover = v1alpha1.HandoverSeal
		for _, mutate := range mutations {
			mutate(l)
		}
	}
}

// awaitSealed waits until the lease's present term is sealed.
func (s *suite) awaitSealed(lease *v1alpha1.FencedLease) {
	s.Helper()
	s.eventually("seal", func() error {
		s.refresh(lease)
		if lease.Status.Seal != v1alpha1.SealRequired || ptr.Deref(lease.Status.SealedGeneration, 0) != ptr.Deref(lease.Status.Generation, 0) {
			return fmt.Errorf("status is %+v", lease.Status)
		}
		return nil
	})
}

// fill creates n Reports at once, with annotations.
func (s *suite) fill(namespace, prefix string, n int, annotations map[string]string) {
	s.Helper()
	var group sync.WaitGroup
	errs := make([]error, 8)
	for worker := range errs {
		group.Go(func() {
			for i := worker; i < n && errs[worker] == nil; i += len(errs) {
				o := env.NewReport(namespace, prefix+strconv.Itoa(i), "v")
				o.SetAnnotations(annotations)
				errs[worker] = s.client.Create(s.Context(), o)
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		s.must(err)
	}
}

// marksIn returns how many Reports have which mark.
func (s *suite) marksIn(namespace, lease string) map[string]int {
	s.Helper()
	reports := &metav1.PartialObjectMetadataList{}
	reports.SetGroupVersionKind(env.ReportKind("v1").GroupVersion().WithKind("ReportList"))
	s.must(s.client.List(s.Context(), reports, client.InNamespace(namespace)))
	marks := map[string]int{}
	for i := range reports.Items {
		marks[reports.Items[i].Annotations[v1alpha1.TokenKey(lease)]]++
	}
	return marks
}

// value returns the value of a counter or gauge with these values of labels.
func value(s *suite, metrics prometheus.Collector, name string, labels ...string) float64 {
	s.Helper()
	registry := prometheus.NewPedanticRegistry()
	s.must(registry.Register(metrics))
	families, err := registry.Gather()
	s.must(err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if family.GetName() == name && slices.Equal(values, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	s.Fatalf("there is no series of %s with %v", name, labels)
	return 0
}

func sealsAll(s *suite, metrics *seal.Metrics) {
	namespace, open := s.env.CreateNamespace(s), s.env.CreateNamespace(s)
	key := v1alpha1.TokenKey("sealed")
	s.fill(namespace, "bare-", 600, nil)
	s.fill(namespace, "old-", 50, map[string]string{key: "3.aaaaaaaa/7"})
	s.fill(namespace, "garbage-", 10, map[string]string{key: "nonsense"})
	s.fill(open, "open-", 5, map[string]string{key: "3.aaaaaaaa"})
	lease := s.createLease(env.NewLease(namespace, "sealed", bySeal()))
	s.awaitReady(lease)
	before := value(s, metrics, "fencedlease_seals_total", "Sealed")
	s.hook.take()
	s.acquire(lease, "a")
	s.awaitSealed(lease)
	s.awaitCondition(lease, v1alpha1.ConditionSealed, metav1.ConditionTrue, v1alpha1.ReasonSealed)
	s.awaitCondition(lease, v1alpha1.ConditionLateCreate, metav1.ConditionFalse, v1alpha1.ReasonNoLateCreate)
	if calls := s.hook.take(); len(calls) > 0 {
		s.Errorf("the webhook was called: %v", calls)
	}
	token := *lease.Status.Token
	if got := s.marksIn(namespace, "sealed"); got[token] != 660 || len(got) != 1 {
		s.Errorf("marks are %v, want 660 times %s", got, token)
	}
	if got := s.marksIn(open, "sealed"); got["3.aaaaaaaa"] != 5 {
		s.Errorf("marks where nothing is guarded are %v", got)
	}
	if n := value(s, metrics, "fencedlease_seals_total", "Sealed"); n != before+1 {
		s.Errorf("%v seals were counted, want %v", n, before+1)
	}
	if n := value(s, metrics, "fencedlease_seal_stamps_total", "Written"); n < 660 {
		s.Errorf("%v stamps were counted, want 660", n)
	}
	if n := value(s, metrics, "fencedlease_seal_pending_objects"); n != 0 {
		s.Errorf("%v objects are pending", n)
	}
	s.eventually("event of the seal", func() error { return s.hasEvent(lease, v1alpha1.ReasonSealed, "generation") })

	// The next term needs a seal as well, and a write of another user in between is stamped over.
	o := env.NewReport(namespace, "bare-0", "v")
	s.refresh(o)
	s.must(s.client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":"new"}}`))))
	s.acquire(lease, "b")
	s.awaitSealed(lease)
	if got := s.marksIn(namespace, "sealed"); got[*lease.Status.Token] != 660 || len(got) != 1 {
		s.Errorf("marks are %v, want 660 times %s", got, *lease.Status.Token)
	}
	s.deleteLeases(namespace)
}

// hasEvent returns nil if there is an event about the lease.
func (s *suite) hasEvent(lease client.Object, reason, note string) error {
	events := &eventsv1.EventList{}
	if err := s.client.List(s.Context(), events, client.InNamespace(lease.GetNamespace())); err != nil {
		return err
	}
	var seen []string
	for _, e := range events.Items {
		if e.Reason == reason && e.Regarding.Name == lease.GetName() && strings.Contains(e.Note, note) {
			return nil
		}
		seen = append(seen, e.Reason+": "+e.Note)
	}
	return fmt.Errorf("no event %s about %s with %q in %v", reason, lease.GetName(), note, seen)
}
