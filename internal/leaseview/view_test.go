// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseview

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// makeLease returns lease namespace/name at a resourceVersion, with changes.
func makeLease(key types.NamespacedName, resourceVersion int, change ...func(*v1alpha1.FencedLease)) *v1alpha1.FencedLease {
	l := &v1alpha1.FencedLease{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, UID: types.UID("uid-of-" + key.Name),
		ResourceVersion: strconv.Itoa(resourceVersion), Generation: 1,
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "test"}},
	}}
	for _, c := range change {
		c(l)
	}
	return l
}

func term(generation int64, term string) func(*v1alpha1.FencedLease) {
	return func(l *v1alpha1.FencedLease) {
		l.Status.Generation, l.Status.Term = ptr.To(generation), ptr.To(term)
	}
}

func guard(groups, resources []string, selector *metav1.LabelSelector) func(*v1alpha1.FencedLease) {
	return func(l *v1alpha1.FencedLease) {
		l.Spec.Guards = append(l.Spec.Guards, v1alpha1.Guard{APIGroups: groups, Resources: resources, NamespaceSelector: selector})
	}
}

// run starts a view over the server inside a synctest bubble and stops it at the end of the bubble.
func run(t *testing.T, v *View) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- v.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Start: %v", err)
		}
	})
	synctest.Wait()
}

// pass lets the time of the synctest bubble pass.
func pass(d time.Duration) { <-time.After(d) }

func TestWentBack(t *testing.T) {
	base := func(change ...func(*v1alpha1.FencedLease)) *v1alpha1.FencedLease {
		return makeLease(keyA, 100, append([]func(*v1alpha1.FencedLease){term(5, "aaaaaaaa"), func(l *v1alpha1.FencedLease) {
			l.Generation = 3
			l.Status.GenerationFloor, l.Status.SealedGeneration = ptr.To[int64](4), ptr.To[int64](5)
		}}, change...)...)
	}
	at := func(resourceVersion string) func(*v1alpha1.FencedLease) {
		return func(l *v1alpha1.FencedLease) { l.ResourceVersion = resourceVersion }
	}
	for name, tc := range map[string]struct {
		read *v1alpha1.FencedLease
		want bool
	}{
		"the same state":                        {base(), false},
		"a renewal":                             {base(at("101")), false},
		"the next term":                         {base(at("101"), term(6, "bbbbbbbb")), false},
		"a lower resourceVersion":               {base(at("99")), true},
		"a shorter resourceVersion":             {base(at("9")), true},
		"a longer resourceVersion":              {base(at("1000")), false},
		"an unreadable resourceVersion":         {base(at("x")), false},
		"a lower generation at a higher one":    {base(at("101"), term(4, "cccccccc")), true},
		"no status any more":                    {base(at("101"), func(l *v1alpha1.FencedLease) { l.Status = v1alpha1.FencedLeaseStatus{} }), true},
		"the same generation with another term": {base(at("101"), term(5, "bbbbbbbb")), true},
		"an older spec":                         {base(at("101"), func(l *v1alpha1.FencedLease) { l.Generation = 2 }), true},
		"a lower floor":                         {base(at("101"), func(l *v1alpha1.FencedLease) { l.Status.GenerationFloor = ptr.To[int64](3) }), true},
		"a lower sealed generation":             {base(at("101"), func(l *v1alpha1.FencedLease) { l.Status.SealedGeneration = ptr.To[int64](4) }), true},
		"deleted and created anew":              {base(at("101"), term(0, ""), func(l *v1alpha1.FencedLease) { l.UID = "other" }), false},
		"an earlier object of the name":         {base(at("50"), func(l *v1alpha1.FencedLease) { l.UID = "other" }), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := wentBack(base(), tc.read); got != tc.want {
				t.Errorf("wentBack = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestGuarding(t *testing.T) {
	reports := schema.GroupResource{Group: "example.com", Resource: "reports"}
	lease := func(namespace, name string, change ...func(*v1alpha1.FencedLease)) *v1alpha1.FencedLease {
		return makeLease(types.NamespacedName{Namespace: namespace, Name: name}, 1, change...)
	}
	for name, tc := range map[string]struct {
		leases    []*v1alpha1.FencedLease
		resource  schema.GroupResource
		namespace string
		want      []string
	}{
		"nobody guards anything": {nil, reports, "a", nil},
		"a lease without guards": {[]*v1alpha1.FencedLease{lease("a", "x")}, reports, "a", nil},
		"a guard of the own namespace": {
			[]*v1alpha1.FencedLease{lease("a", "x", guard([]string{"example.com"}, []string{"reports"}, nil))}, reports, "a", []string{"a/x"},
		},
		"a guard of another namespace for its own": {
			[]*v1alpha1.FencedLease{lease("b", "x", guard([]string{"example.com"}, []string{"reports"}, nil))}, reports, "a", nil,
		},
		"a guard with a namespaceSelector, whatever it selects": {
			[]*v1alpha1.FencedLease{lease("b", "x", guard([]string{"example.com"}, []string{"reports"}, &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}))},
			reports, "a", []string{"b/x"},
		},
		"a cluster-scoped object is guarded by namespaceSelectors only": {
			[]*v1alpha1.FencedLease{
				lease("a", "x", guard([]string{"example.com"}, []string{"reports"}, nil)),
				lease("b", "y", guard([]string{"example.com"}, []string{"reports"}, &metav1.LabelSelector{})),
			}, reports, "", []string{"b/y"},
		},
		"subresource forms count as their resource": {
			[]*v1alpha1.FencedLease{
				lease("a", "star", guard([]string{"example.com"}, []string{"reports/*"}, nil)),
				lease("a", "status", guard([]string{"example.com"}, []string{"reports/status"}, nil)),
				lease("a", "several", guard([]string{"example.com"}, []string{"reports", "reports/status", "reports/scale"}, nil)),
			}, reports, "a", []string{"a/several", "a/star", "a/status"},
		},
		"another group or resource does not count": {
			[]*v1alpha1.FencedLease{
				lease("a", "group", guard([]string{"other.com"}, []string{"reports"}, nil)),
				lease("a", "resource", guard([]string{"example.com"}, []string{"reportsx"}, nil)),
				lease("a", "crossed", guard([]string{"com"}, []string{"reports.example"}, nil)),
			}, reports, "a", nil,
		},
		"the product of groups and resources": {
			[]*v1alpha1.FencedLease{lease("a", "x", guard([]string{"one.com", "example.com"}, []string{"widgets", "reports"}, nil))},
			schema.GroupResource{Group: "one.com", Resource: "reports"}, "a", []string{"a/x"},
		},
		"a lease with guards of both kinds is found once, the order is fixed": {
			[]*v1alpha1.FencedLease{
				lease("b", "z", guard([]string{"example.com"}, []string{"reports"}, &metav1.LabelSelector{})),
				lease("a", "x", guard([]string{"example.com"}, []string{"reports"}, nil), guard([]string{"example.com"}, []string{"reports"}, &metav1.LabelSelector{})),
				lease("a", "w", guard([]string{"example.com"}, []string{"reports"}, nil)),
			}, reports, "a", []string{"a/w", "a/x", "b/z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newTestView(t, newScriptedReader(), func(o *Options) { o.Source = newServer(tc.leases...) })
				run(t, v)
				leases, err := v.Guarding(tc.resource, tc.namespace)
				if err != nil {
					t.Fatalf("Guarding: %v", err)
				}
				var got []string
				for _, l := range leases {
					got = append(got, keyOf(l).String())
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("Guarding (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestNothingIsGuessedBeforeTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(makeLease(keyA, 1))
		release := s.hold()
		v := newTestView(t, newScriptedReader(), func(o *Options) { o.Source = s })
		run(t, v)
		if _, err := v.Guarding(schema.GroupResource{Group: "example.com", Resource: "reports"}, "a"); !errors.Is(err, ErrNotSynced) {
			t.Errorf("Guarding: %v, want %v", err, ErrNotSynced)
		}
		if err := v.Ready(); !errors.Is(err, ErrNotSynced) {
			t.Errorf("Ready: %v, want %v", err, ErrNotSynced)
		}
		if _, ok := v.Cached(keyA); ok {
			t.Error("Cached knows a lease")
		}
		release()
		synctest.Wait()
		if err := v.Ready(); err != nil {
			t.Errorf("Ready after the list: %v", err)
		}
		lease, ok := v.Cached(keyA)
		if !ok || lease.ManagedFields != nil {
			t.Errorf("Cached: %v, %v, want the lease without managedFields", lease, ok)
		}
		if diff := cmp.Diff([]string{""}, s.lists); diff != "" {
			t.Errorf("resourceVersions asked for (-want +got):\n%s", diff)
		}
		if v.NeedLeaderElection() {
			t.Error("the view runs on the leader only")
		}
	})
}

func TestWaitFor(t *testing.T) {
	for name, tc := range map[string]struct {
		wait string
		then func(*server)
		want string
	}{
		"nothing in particular":         {"", func(*server) {}, "reached"},
		"the list's":                    {"10", func(*server) {}, "reached"},
		"one below the list's":          {"9", func(*server) {}, "reached"},
		"a later one, nothing happens":  {"11", func(*server) {}, "waiting"},
		"a later one, reached by event": {"11", func(s *server) { s.send(watch.Modified, makeLease(keyA, 11)) }, "reached"},
		"a later one, passed by event":  {"11", func(s *server) { s.send(watch.Added, makeLease(keyB, 12)) }, "reached"},
		"a later one, event below":      {"12", func(s *server) { s.send(watch.Modified, makeLease(keyA, 11)) }, "waiting"},
		"by a deletion":                 {"11", func(s *server) { s.send(watch.Deleted, makeLease(keyA, 11)) }, "reached"},
		"by a bookmark":                 {"11", func(s *server) { s.bookmark(11) }, "reached"},
		"compared as numbers":           {"9", func(*server) {}, "reached"},
		"above, compared as numbers":    {"100", func(s *server) { s.bookmark(99) }, "waiting"},
		"not a resourceVersion":         {"x1", func(*server) {}, "refused"},
		"zero":                          {"0", func(*server) {}, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.set(10, makeLease(keyA, 8))
				v := newTestView(t, newScriptedReader(), func(o *Options) { o.Source = s })
				run(t, v)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- v.WaitFor(ctx, tc.wait) }()
				synctest.Wait()
				tc.then(s)
				synctest.Wait()
				got := "waiting"
				select {
				case err := <-done:
					got = "reached"
					if err != nil {
						got = "refused"
					}
				default:
					if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("WaitFor: %v, want %v", err, context.DeadlineExceeded)
					}
				}
				if got != tc.want {
					t.Errorf("WaitFor: %s, want %s", got, tc.want)
				}
			})
		})
	}
}

// TestWaitersAndGuardsAgree: whoever was told that the copy has reached an event finds the event's guards.
func TestWaitersAndGuardsAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		v := newTestView(t, newScriptedReader(), func(o *Options) { o.Source = s })
		run(t, v)
		const events = 50
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error, events)
		for i := range events {
			go func() {
				err := v.WaitFor(ctx, strconv.Itoa(100+i))
				if err == nil {
					var leases []*v1alpha1.FencedLease
					leases, err = v.Guarding(schema.GroupResource{Group: "example.com", Resource: fmt.Sprintf("r%d", i)}, "reports")
					if err == nil && len(leases) != 1 {
						err = fmt.Errorf("resource r%d: %d leases, want 1", i, len(leases))
					}
				}
				done <- err
			}()
		}
		synctest.Wait()
		for i := range events {
			key := types.NamespacedName{Namespace: "reports", Name: fmt.Sprintf("l%d", i)}
			s.send(watch.Added, makeLease(key, 100+i, guard([]string{"example.com"}, []string{fmt.Sprintf("r%d", i)}, nil)))
		}
		for range events {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// behindLog records the calls of OnBehind.
type behindLog struct{ calls atomic.Pointer[[]string] }

func (b *behindLog) add(key types.NamespacedName, cached, read *v1alpha1.FencedLease) {
	calls := append(b.get(), fmt.Sprintf("%s: %s after %s", key.Name, read.ResourceVersion, cached.ResourceVersion))
	b.calls.Store(&calls)
}

func (b *behindLog) get() []string {
	if p := b.calls.Load(); p != nil {
		return *p
	}
	return nil
}

// fixedReader returns one lease at a time.
type fixedReader struct {
	lease atomic.Pointer[v1alpha1.FencedLease]
}

func (r *fixedReader) Get(context.Context, types.NamespacedName) (*v1alpha1.FencedLease, error) {
	return r.lease.Load(), nil
}

func TestRestoredStoreReplacesTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.set(100, makeLease(keyA, 90, term(7, "aaaaaaaa")), makeLease(keyB, 95))
		reader, behind := &fixedReader{}, &behindLog{}
		v := newTestView(t, reader, func(o *Options) { o.Source, o.Reader, o.OnBehind = s, reader, behind.add })
		run(t, v)
		// Nothing is wrong so far.
		reader.lease.Store(makeLease(keyA, 90, term(7, "aaaaaaaa")))
		if _, err := v.Fresh(t.Context(), keyA); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := v.Ready(); err != nil || len(behind.get()) != 0 {
			t.Fatalf("Ready: %v, behind: %v", err, behind.get())
		}
		pass(10 * time.Second) // past the least interval of replacements

		// The store is restored to an earlier state; the watch does not tell.
		release := s.hold()
		s.set(50, makeLease(keyA, 40, term(5, "bbbbbbbb")), makeLease(keyB, 30))
		reader.lease.Store(makeLease(keyA, 40, term(5, "bbbbbbbb")))
		for range 3 {
			lease, err := v.Fresh(t.Context(), keyA)
			if err != nil || lease.ResourceVersion != "40" {
				t.Fatalf("Fresh: %v, %v: the read's answer must be given", lease, err)
			}
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"a: 40 after 90"}, behind.get()); diff != "" {
			t.Errorf("OnBehind before the list (-want +got):\n%s", diff)
		}
		if err := v.Ready(); err == nil {
			t.Error("Ready while the copy is being replaced")
		}
		if lease, ok := v.Cached(keyA); !ok || lease.ResourceVersion != "90" {
			t.Errorf("Cached: %v, %v, want the old copy's until the new one is there", lease, ok)
		}
		waited := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { waited <- v.WaitFor(ctx, "101") }()
		synctest.Wait()

		release()
		synctest.Wait()
		if err := v.Ready(); err != nil {
			t.Errorf("Ready with the new copy: %v", err)
		}
		if lease, ok := v.Cached(keyA); !ok || lease.ResourceVersion != "40" {
			t.Errorf("Cached: %v, %v, want the new copy's", lease, ok)
		}
		// The list shows that the other lease went back too; the first one is not reported again.
		if diff := cmp.Diff([]string{"a: 40 after 90", "b: 30 after 95"}, behind.get()); diff != "" {
			t.Errorf("OnBehind (-want +got):\n%s", diff)
		}
		if got := testutil.ToFloat64(v.opts.Metrics.relists.WithLabelValues(relistBehind)); got != 1 {
			t.Errorf("metric counts %v replacements, want 1", got)
		}
		if diff := cmp.Diff([]string{"", ""}, s.lists); diff != "" {
			t.Errorf("resourceVersions asked for (-want +got):\n%s", diff)
		}
		// Who waited on the old copy waits on for the new one.
		s.bookmark(101)
		if err := <-waited; err != nil {
			t.Errorf("WaitFor over the replacement: %v", err)
		}
	})
}

func TestFrozenCopyTakesNoMoreChanges(t *testing.T) {
	s := newStore(clock.RealClock{}, nil, NewHolders(clock.RealClock{}))
	if err := s.Replace([]any{makeLease(keyA, 90)}, "100"); err != nil {
		t.Fatal(err)
	}
	s.freeze()
	for name, change := range map[string]func() error{
		"add":      func() error { return s.Add(makeLease(keyB, 110)) },
		"update":   func() error { return s.Update(makeLease(keyA, 110)) },
		"delete":   func() error { return s.Delete(makeLease(keyA, 110)) },
		"bookmark": func() error { return s.Bookmark("110") },
		"replace":  func() error { return s.Replace(nil, "110") },
	} {
		if err := change(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if ok, _ := s.reached("101"); ok {
			t.Errorf("%s moved the resourceVersion", name)
		}
		if a, b := s.get(keyA), s.get(keyB); a == nil || a.ResourceVersion != "90" || b != nil {
			t.Errorf("%s changed the content: %v, %v", name, a, b)
		}
	}
}

func TestStoreRefusesWhatIsNoLease(t *testing.T) {
	s := newStore(clock.RealClock{}, nil, NewHolders(clock.RealClock{}))
	for name, err := range map[string]error{
		"add":     s.Add(&v1alpha1.FencedLeaseList{}),
		"update":  s.Update("x"),
		"delete":  s.Delete(nil),
		"replace": s.Replace([]any{1}, "1"),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if s.isReady() {
		t.Error("a refused list made the store ready")
	}
}

func TestEventsThatWentBackReplaceTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.set(100, makeLease(keyA, 90, term(7, "aaaaaaaa")))
		behind := &behindLog{}
		v := newTestView(t, newScriptedReader(), func(o *Options) { o.Source, o.OnBehind = s, behind.add })
		run(t, v)
		s.set(120, makeLease(keyA, 115, term(6, "cccccccc")))
		s.send(watch.Modified, makeLease(keyA, 110, term(6, "cccccccc")))
		synctest.Wait()
		if err := v.Ready(); err == nil {
			t.Error("Ready although events are missing")
		}
		pass(10 * time.Second)
		synctest.Wait()
		if err := v.Ready(); err != nil {
			t.Errorf("Ready after the replacement: %v", err)
		}
		if diff := cmp.Diff([]string{"a: 110 after 90"}, behind.get()); diff != "" {
			t.Errorf("OnBehind (-want +got):\n%s", diff)
		}
		if lease, _ := v.Cached(keyA); lease.ResourceVersion != "115" {
			t.Errorf("Cached: %s, want the list's", lease.ResourceVersion)
		}
	})
}

// A store that was restored without raised revisions is soon as far again as it was: a watch from the version of the copy
// goes on as if nothing had been, and a lease that is back is never told.
func TestALeaseThatIsBackIsSeenWhenTheWatchHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.set(100, makeLease(keyA, 90))
		v := newTestView(t, newScriptedReader(), func(o *Options) { o.Source = s })
		run(t, v)
		for version := 110; version < 150; version += 10 {
			s.set(version, makeLease(keyA, 90), makeLease(keyB, 80))
			s.end()
			pass(10 * time.Second)
			synctest.Wait()
			if _, ok := v.Cached(keyB); !ok {
				t.Errorf("at version %d the lease is not seen", version)
			}
			if err := v.Ready(); err != nil {
				t.Errorf("Ready at version %d: %v", version, err)
			}
			s.set(version+5, makeLease(keyA, 90))
			s.end()
			pass(10 * time.Second)
			synctest.Wait()
			if _, ok := v.Cached(keyB); ok {
				t.Errorf("after version %d the lease that is gone again is seen", version)
			}
		}
	})
}

func TestStaleCopyIsReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		before func(*testing.T, *View, *server, *fixedReader)
		after  time.Duration
	}{
		"a read showed more and the copy does not follow": {relistLagging, func(t *testing.T, v *View, _ *server, r *fixedReader) {
			r.lease.Store(makeLease(keyA, 200))
			if _, err := v.Fresh(t.Context(), keyA); err != nil {
				t.Fatal(err)
			}
		}, 11 * time.Second},
		"nothing was heard for too long": {relistSilent, func(*testing.T, *View, *server, *fixedReader) {}, 301 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.set(100, makeLease(keyA, 90))
				reader := &fixedReader{}
				v := newTestView(t, reader, func(o *Options) { o.Source = s })
				run(t, v)
				release := s.hold()
				tc.before(t, v, s, reader)
				if err := v.Ready(); err != nil {
					t.Errorf("Ready too early red: %v", err)
				}
				pass(tc.after)
				synctest.Wait()
				if err := v.Ready(); err == nil {
					t.Error("Ready with a stale copy")
				}
				s.set(300, makeLease(keyA, 200))
				release()
				synctest.Wait()
				if err := v.Ready(); err != nil {
					t.Errorf("Ready after the replacement: %v", err)
				}
				if got := testutil.ToFloat64(v.opts.Metrics.relists.WithLabelValues(tc.reason)); got != 1 {
					t.Errorf("metric counts %v replacements for %s, want 1", got, tc.reason)
				}
			})
		})
	}
}

func TestCopyThatFollowsStaysReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.set(100, makeLease(keyA, 90))
		reader := &fixedReader{}
		v := newTestView(t, reader, func(o *Options) { o.Source = s })
		run(t, v)
		for i := range 100 {
			reader.lease.Store(makeLease(keyA, 200+i))
			if _, err := v.Fresh(t.Context(), keyA); err != nil {
				t.Fatal(err)
			}
			pass(5 * time.Second)
			s.send(watch.Modified, makeLease(keyA, 200+i))
			synctest.Wait()
			if err := v.Ready(); err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
		}
		if len(s.lists) != 1 {
			t.Errorf("%d lists, want 1", len(s.lists))
		}
	})
}
