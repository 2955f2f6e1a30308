// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package publish_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/leader/publish"
	"github.com/fencedlease/fencedlease/test/env"
)

// A process ends at each write of its work, before it arrives or after, and a successor goes on: what is published is whole
// at every moment, and nothing else is left when the successor has collected.
func TestAProcessThatEndsAtAnyStepLeavesNothingButWhatIsPublished(t *testing.T) {
	for name, carry := range carriers {
		t.Run(name, func(t *testing.T) {
			base := newSite(t, carry)
			// How many writes the work has.
			counting := &wire{}
			base.must(base.work(t.Context(), base.publisher(base.take("counter"), counting.wrap)))
			base.only()
			if counting.count < 12 {
				t.Fatalf("only %d writes", counting.count)
			}
			for n := 1; n <= counting.count; n++ {
				for _, applied := range []bool{false, true} {
					t.Run(fmt.Sprintf("write %d, applied: %t", n, applied), func(t *testing.T) {
						s := base.next(t)
						ending := &wire{n: n, applied: applied, dead: true}
						if err := s.work(t.Context(), s.publisher(s.take("first"), ending.wrap)); err == nil {
							t.Fatal("the process has not ended")
						}
						s.whole()

						second := s.publisher(s.take("second"))
						s.must(second.Ensure(t.Context(), env.NewReport(s.namespace, s.name, "")))
						before := s.shown()
						_, err := second.Collect(t.Context())
						s.must(err)
						equal(t, "what is published, after the collection", before, s.shown())
						s.only()
						s.must(s.work(t.Context(), second))
						s.only()
					})
				}
			}
		})
	}
}

// One answer is lost at each write, and the process goes on by calling again.
func TestLostAnswersArePutRightByCallingAgain(t *testing.T) {
	for name, carry := range carriers {
		t.Run(name, func(t *testing.T) {
			base := newSite(t, carry)
			for n := 1; n <= 8; n++ {
				for _, applied := range []bool{false, true} {
					t.Run(fmt.Sprintf("write %d, applied: %t", n, applied), func(t *testing.T) {
						s := base.next(t)
						lossy := &wire{n: n, applied: applied}
						p := s.publisher(s.take("leader"), lossy.wrap)
						again := func(step func() error) {
							t.Helper()
							if err := step(); err != nil {
								s.must(step())
							}
						}
						again(func() error { return p.Ensure(t.Context(), env.NewReport(s.namespace, s.name, "")) })
						again(func() error { _, err := p.Collect(t.Context()); return err })
						staging := p.Begin()
						for _, obj := range []client.Object{
							s.configMap(staging.Name("style")), s.configMap(staging.Name("picture")), env.NewReport(s.namespace, staging.Name("page"), "text"),
						} {
							again(func() error { return staging.Create(t.Context(), obj) })
						}
						// The switch itself needs no second call.
						s.must(staging.Publish(t.Context(), referTo(staging.Name("page"))))
						again(func() error { _, err := p.Collect(t.Context()); return err })
						equal(t, "published", staging.Name("page"), s.shown())
						s.only()
					})
				}
			}
		})
	}
}

func TestAPausedLeaderPublishesNothingAndIsCollected(t *testing.T) {
	for name, carry := range carriers {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, carry)
			paused := s.publisher(s.take("first"))
			s.must(s.work(t.Context(), paused))
			published := s.shown()
			early, err := s.stage(t.Context(), paused)
			s.must(err)

			second := s.publisher(s.take("second"))
			found, err := second.Collect(t.Context())
			s.must(err)
			equal(t, "collected", publish.Collected{Deleted: 3, Kept: 3}, found)

			t.Run("what it had staged cannot be published", func(t *testing.T) {
				err := early.Publish(t.Context(), referTo(early.Name("page")))
				if cause, ok := fenced.Cause(err); !ok || cause.Type != fenced.StaleToken {
					t.Errorf("want a stale token, got %v", err)
				}
			})
			t.Run("what it stages late lands if it is not guarded, and cannot be published either", func(t *testing.T) {
				late := paused.Begin()
				s.must(late.Create(t.Context(), s.configMap(late.Name("style"))))
				if err := late.Create(t.Context(), env.NewReport(s.namespace, late.Name("page"), "late")); !fenced.IsFenced(err) {
					t.Errorf("want a refusal, got %v", err)
				}
				if err := late.Publish(t.Context(), referTo(late.Name("style"))); err == nil {
					t.Error("a staging without one of its objects was published")
				}
				other := paused.Begin()
				s.must(other.Create(t.Context(), s.configMap(other.Name("style"))))
				if err := other.Publish(t.Context(), referTo(other.Name("style"))); !fenced.IsFenced(err) {
					t.Errorf("want a refusal, got %v", err)
				}
			})
			t.Run("it collects nothing", func(t *testing.T) {
				if _, err := paused.Collect(t.Context()); !fenced.IsFenced(err) {
					t.Errorf("want a refusal, got %v", err)
				}
			})
			found, err = second.Collect(t.Context())
			s.must(err)
			equal(t, "collected", publish.Collected{Deleted: 2, Kept: 3}, found)
			equal(t, "published", published, s.shown())
			s.only()
		})
	}
}

// The switch of a leader is past its checks when the next one takes over and collects: it would refer to what is deleted. It
// is asked again at the commit, as the collection has written the reference before.
func TestASwitchUnderWayNeverRefersToWhatWasCollected(t *testing.T) {
	for name, carry := range carriers {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, carry)
			first := s.publisher(s.take("first"))
			s.must(s.work(t.Context(), first))
			published := s.shown()
			staging, err := s.stage(t.Context(), first)
			s.must(err)

			hold := gap.Hold(func(r *admissionv1.AdmissionRequest) bool {
				return r.Name == s.name && strings.Contains(string(r.Object.Raw), staging.Name("page"))
			})
			switched := make(chan error, 1)
			go func() { switched <- staging.Publish(t.Context(), referTo(staging.Name("page"))) }()
			<-hold.Entered()
			second := s.publisher(s.take("second"))
			found, err := second.Collect(t.Context())
			s.must(err)
			equal(t, "collected", publish.Collected{Deleted: 3, Kept: 3}, found)
			hold.Release()
			if err := <-switched; !fenced.IsFenced(err) {
				t.Errorf("want a refusal, got %v", err)
			}
			equal(t, "published", published, s.shown())
			s.only()
		})
	}
}

func TestTwoLeadersInTurn(t *testing.T) {
	for name, carry := range carriers {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, carry)
			for _, holder := range []string{"a", "b", "a", "b"} {
				p := s.publisher(s.take(holder))
				s.must(s.work(t.Context(), p))
				s.only()
			}
		})
	}
}

// What must not be collected.
func TestCollectLeavesAlone(t *testing.T) {
	s := newSite(t, byAnnotation)
	ensure := func(t *testing.T, s *site, p *publish.Publisher) {
		t.Helper()
		s.must(p.Ensure(t.Context(), env.NewReport(s.namespace, s.name, "")))
	}
	t.Run("what another publisher of the term stages", func(t *testing.T) {
		s := s.next(t)
		possession := s.take("leader")
		p, other := s.publisher(possession), s.publisher(possession)
		ensure(t, s, p)
		_, err := s.stage(t.Context(), other)
		s.must(err)
		found, err := p.Collect(t.Context())
		s.must(err)
		equal(t, "collected", publish.Collected{Kept: 3}, found)
	})
	t.Run("what is staged and not given up; and what is given up goes", func(t *testing.T) {
		s := s.next(t)
		p := s.publisher(s.take("leader"))
		ensure(t, s, p)
		staging, err := s.stage(t.Context(), p)
		s.must(err)
		found, err := p.Collect(t.Context())
		s.must(err)
		equal(t, "collected", publish.Collected{Kept: 3}, found)
		staging.Abandon()
		if err := staging.Publish(t.Context(), referTo(staging.Name("page"))); !errors.Is(err, publish.ErrFinished) {
			t.Errorf("want %v, got %v", publish.ErrFinished, err)
		}
		found, err = p.Collect(t.Context())
		s.must(err)
		equal(t, "collected", publish.Collected{Deleted: 3}, found)
	})
	t.Run("what belongs to another reference, and what nobody has staged", func(t *testing.T) {
		s := s.next(t)
		other := s.next(t)
		former := other.publisher(s.take("former"))
		_, err := other.stage(t.Context(), former)
		s.must(err)
		s.must(admin.Create(t.Context(), s.configMap("by-hand-"+s.name)))
		p := s.publisher(s.take("leader"))
		ensure(t, s, p)
		found, err := p.Collect(t.Context())
		s.must(err)
		equal(t, "collected", publish.Collected{}, found)
		equal(t, "stagings of the other reference", 1, len(other.stagings()))
	})
	t.Run("what a newer term has staged, or another history under the same generation", func(t *testing.T) {
		s := s.next(t)
		possession := s.take("leader")
		for _, of := range []*term{
			{lease: possession.lease, token: possession.token}, {lease: possession.lease, token: possession.token},
		} {
			of.token.Term = "zzzzzzzz"
			if len(s.stagings()) > 0 {
				of.token.Generation++
			}
			// Without guards to know of, the client stamps nothing: such objects are not guarded.
			p := s.publisher(of)
			s.must(p.Begin().Create(t.Context(), s.configMap(fmt.Sprintf("%s-of-%d", s.name, of.token.Generation))))
		}
		p := s.publisher(possession)
		ensure(t, s, p)
		found, err := p.Collect(t.Context())
		s.must(err)
		equal(t, "collected", publish.Collected{Kept: 2}, found)
	})
	t.Run("what has changed since it was judged", func(t *testing.T) {
		s := s.next(t)
		former := s.publisher(s.take("former"))
		staging := former.Begin()
		object := s.configMap(staging.Name("style"))
		s.must(staging.Create(t.Context(), object))
		touching := func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodDelete {
					object.Data["text"] = "in use"
					s.must(admin.Update(t.Context(), object))
				}
				return next.RoundTrip(r)
			})
		}
		p := s.publisher(s.take("leader"), touching)
		ensure(t, s, p)
		found, err := p.Collect(t.Context())
		if !apierrors.IsConflict(err) {
			t.Errorf("want a conflict, got %v", err)
		}
		equal(t, "collected", publish.Collected{Kept: 1}, found)
	})
	t.Run("everything, if the reference is not guarded", func(t *testing.T) {
		s := s.next(t)
		former := s.publisher(s.take("former"))
		staging := former.Begin()
		s.must(staging.Create(t.Context(), s.configMap(staging.Name("style"))))
		possession := s.take("leader")
		reference := s.configMap(s.name)
		s.must(admin.Create(t.Context(), reference))
		p, err := publish.New(publish.Options{
			Client: s.carry(t, cluster.Config(), possession), Possession: possession, Reference: reference,
			Refers: func(reference, staged client.Object) bool { return reference.GetLabels()["shows"] == staged.GetName() },
			Kinds:  []schema.GroupVersionKind{configMaps},
		})
		s.must(err)
		if _, err := p.Collect(t.Context()); !errors.Is(err, publish.ErrNotGuarded) {
			t.Errorf("want %v, got %v", publish.ErrNotGuarded, err)
		}
		own := p.Begin()
		s.must(own.Create(t.Context(), s.configMap(own.Name("style"))))
		err = own.Publish(t.Context(), func(reference client.Object) error {
			reference.SetLabels(map[string]string{"shows": own.Name("style")})
			return nil
		})
		if !errors.Is(err, publish.ErrNotGuarded) {
			t.Errorf("want %v, got %v", publish.ErrNotGuarded, err)
		}
	})
}

func TestPublishRefuses(t *testing.T) {
	s := newSite(t, byAnnotation)
	p := s.publisher(s.take("leader"))
	t.Run("a reference that is missing", func(t *testing.T) {
		staging, err := s.stage(t.Context(), p)
		s.must(err)
		if err := staging.Publish(t.Context(), referTo(staging.Name("page"))); !apierrors.IsNotFound(err) {
			t.Errorf("want not found, got %v", err)
		}
	})
	s.must(p.Ensure(t.Context(), env.NewReport(s.namespace, s.name, "")))
	t.Run("a switch to something else", func(t *testing.T) {
		staging, err := s.stage(t.Context(), p)
		s.must(err)
		if err := staging.Publish(t.Context(), referTo("elsewhere")); !errors.Is(err, publish.ErrDoesNotRefer) {
			t.Errorf("want %v, got %v", publish.ErrDoesNotRefer, err)
		}
		failure := errors.New("no")
		if err := staging.Publish(t.Context(), func(client.Object) error { return failure }); !errors.Is(err, failure) {
			t.Errorf("want %v, got %v", failure, err)
		}
		equal(t, "published", "", s.shown())
	})
	t.Run("an object whose name is taken, or that has none", func(t *testing.T) {
		s.must(admin.Create(t.Context(), s.configMap("taken")))
		staging := p.Begin()
		if err := staging.Create(t.Context(), s.configMap("taken")); !apierrors.IsAlreadyExists(err) {
			t.Errorf("want already exists, got %v", err)
		}
		if err := staging.Create(t.Context(), s.configMap("")); err == nil {
			t.Error("an object without a name was staged")
		}
	})
	t.Run("to be made without what it needs", func(t *testing.T) {
		possession := s.take("leader")
		complete := publish.Options{
			Client: admin, Possession: possession, Reference: env.NewReport(s.namespace, s.name, ""), Refers: refers,
			Kinds: []schema.GroupVersionKind{configMaps},
		}
		for name, spoil := range map[string]func(*publish.Options){
			"client": func(o *publish.Options) { o.Client = nil }, "possession": func(o *publish.Options) { o.Possession = nil },
			"reference": func(o *publish.Options) { o.Reference = nil }, "refers": func(o *publish.Options) { o.Refers = nil },
			"kinds": func(o *publish.Options) { o.Kinds = nil }, "name": func(o *publish.Options) { o.Reference = env.NewReport("", "", "") },
			"token": func(o *publish.Options) { o.Possession = &term{} },
		} {
			options := complete
			spoil(&options)
			if _, err := publish.New(options); err == nil {
				t.Errorf("made without its %s", name)
			}
		}
	})
}

// The switch is conditioned on the reference as it was read: what others write meanwhile is not lost.
func TestASwitchKeepsWhatOthersWrite(t *testing.T) {
	s := newSite(t, byAnnotation)
	possession := s.take("leader")
	p := s.publisher(possession)
	s.must(p.Ensure(t.Context(), env.NewReport(s.namespace, s.name, "")))
	staging, err := s.stage(t.Context(), p)
	s.must(err)
	calls := 0
	s.must(staging.Publish(t.Context(), func(reference client.Object) error {
		if calls++; calls == 1 {
			other := env.NewReport(s.namespace, s.name, "")
			c := s.carry(t, cluster.Config(), possession)
			s.must(c.Get(t.Context(), client.ObjectKeyFromObject(other), other))
			other.SetLabels(map[string]string{"by": "another"})
			s.must(c.Update(t.Context(), other))
		}
		return referTo(staging.Name("page"))(reference)
	}))
	equal(t, "calls", 2, calls)
	reference := env.NewReport(s.namespace, s.name, "")
	s.must(admin.Get(t.Context(), client.ObjectKeyFromObject(reference), reference))
	equal(t, "labels", map[string]string{"by": "another"}, reference.GetLabels())
	equal(t, "published", staging.Name("page"), s.shown())
}

// What a publication and a collection cost, in requests and time.
func TestCosts(t *testing.T) {
	s := newSite(t, byAnnotation)
	counting := &wire{}
	p := s.publisher(s.take("leader"), counting.wrap)
	s.must(s.work(t.Context(), p))
	const rounds = 10
	before, begun := counting.count, time.Now()
	for range rounds {
		_, err := s.publish(t.Context(), p)
		s.must(err)
	}
	published, after := counting.count, time.Now()
	_, err := p.Collect(t.Context())
	s.must(err)
	t.Logf("a publication of 3 objects: %d writes, %s; a collection of %d objects: %d writes, %s", (published-before)/rounds,
		after.Sub(begun)/rounds, 3*rounds, counting.count-published, time.Since(after))
	s.only()
}
