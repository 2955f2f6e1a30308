// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// player is an elector in a bubble, where time is not real.
type player struct {
	name    string
	elector *Elector
	cancel  context.CancelFunc
	done    chan error
	// finish ends the present work.
	finish chan error

	mu      sync.Mutex
	term    *Term
	working context.Context
	works   int
	// ignoring work does not end with its context.
	ignoring bool
	waiting  []error
}

func (s *script) player(t *testing.T, name string, changes ...func(*Options)) *player {
	t.Helper()
	p := &player{name: name, done: make(chan error, 1), finish: make(chan error)}
	options := Options{
		Config: s.config(name), Namespace: "reports", Name: "report-writer", Identity: name,
		OnWaiting: func(reason error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.waiting = append(p.waiting, reason)
		},
	}
	for _, change := range changes {
		change(&options)
	}
	var err error
	if p.elector, err = New(options); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	p.cancel = cancel
	go func() {
		p.done <- p.elector.Run(ctx, func(ctx context.Context, term *Term) error {
			p.mu.Lock()
			p.term, p.working = term, ctx
			p.works++
			end := ctx.Done()
			if p.ignoring {
				end = nil
			}
			p.mu.Unlock()
			select {
			case <-end:
				return ctx.Err()
			case err := <-p.finish:
				return err
			}
		})
		close(p.done)
	}()
	return p
}

// stop ends the elector and its work.
func (p *player) stop() {
	p.cancel()
	<-p.done
}

func (p *player) current() (*Term, context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.term, p.working
}

// believes reports whether the player takes itself for the leader.
func (p *player) believes() bool {
	term, _ := p.current()
	return term != nil && term.Err() == nil
}

func (p *player) lastReason() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		return nil
	}
	return p.waiting[len(p.waiting)-1]
}

// until lets time pass until the condition holds, and returns how much it was.
func until(t *testing.T, what string, limit time.Duration, condition func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !condition() {
		if time.Since(begin) > limit {
			t.Fatalf("after %s still not: %s", limit, what)
		}
		<-time.After(time.Millisecond)
		synctest.Wait()
	}
	return time.Since(begin)
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func between(t *testing.T, what string, least, most, got time.Duration) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: want %s to %s, got %s", what, least, most, got)
	}
}

func TestAFreeLeaseIsTakenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		a := s.player(t, "a")
		between(t, "first acquisition", 0, releaseSpread+2*time.Millisecond, until(t, "a leads", time.Second, a.believes))
		b := s.player(t, "b")
		pass(time.Second)
		a.finish <- nil
		between(t, "handover", 0, releaseSpread+2*time.Millisecond, until(t, "b leads", time.Second, b.believes))
		if err := <-a.done; err != nil {
			t.Errorf("Run: %v", err)
		}
		b.stop()
	})
}

func TestAnIdleFollowerSendsNothingButItsWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		a := s.player(t, "a")
		until(t, "a leads", time.Second, a.believes)
		b := s.player(t, "b")
		pass(time.Hour)
		for _, key := range []string{"b GET", "b PATCH"} {
			if diff := cmp.Diff(0, s.count(key)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", key, diff)
			}
		}
		if diff := cmp.Diff(1, s.count("b WATCH")); diff != "" {
			t.Errorf("watches of the follower (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(0, s.count("a GET")); diff != "" {
			t.Errorf("reads of the holder (-want +got):\n%s", diff)
		}
		between(t, "renewals of an hour", 1795, 1805, time.Duration(s.count("a PATCH")))
		a.stop()
		b.stop()
	})
}

// The times that the lease shows are those of another host's clock, whatever it says.
func TestASilentHolderIsFollowedAfterTheLeaseDurationWhateverItsClockSays(t *testing.T) {
	for name, renewed := range map[string]time.Time{
		"its clock is decades behind": time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC),
		"its clock is decades ahead":  time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(held("silent"), func(l *v1alpha1.FencedLease) { l.Status.RenewTime = ptr.To(metav1.NewMicroTime(renewed)) })
				b := s.player(t, "b")
				between(t, "wait", 15*time.Second, 16*time.Second+2*time.Millisecond, until(t, "b leads", time.Minute, b.believes))
				b.stop()
			})
		})
	}
}

func TestConditionsAreNoSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(held("silent"))
		b := s.player(t, "b")
		begin := time.Now()
		for !b.believes() && time.Since(begin) < time.Minute {
			s.change(func(l *v1alpha1.FencedLease) { l.Status.ObservedGeneration++ })
			pass(7 * time.Millisecond)
		}
		between(t, "wait", 15*time.Second, 17*time.Second, time.Since(begin))
		b.stop()
	})
}

func TestATermIsValidFromTheSendingOfItsLastConfirmedRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.delay["a"] = time.Second // each way
		a := s.player(t, "a")
		until(t, "a leads", time.Minute, a.believes)
		pass(time.Minute)
		before := s.lastAccepted("a")
		until(t, "a renewal arrives", time.Minute, func() bool { return s.lastAccepted("a").After(before) })
		accepted := s.lastAccepted("a")
		pass(1100 * time.Millisecond) // its answer as well
		term, working := a.current()
		s.partition("a", true)
		<-term.Done()
		if working.Err() == nil {
			t.Error("the term is done and the context of its work is not")
		}
		// It was sent one second before it arrived, and lasts ten from then on.
		if diff := cmp.Diff(accepted.Add(9*time.Second), time.Now()); diff != "" {
			t.Errorf("end of the term (-want +got):\n%s", diff)
		}
		var lost *LostError
		if !errors.As(term.Err(), &lost) || !lost.Expired || !errors.Is(context.Cause(working), lost) {
			t.Errorf("want an expired term and its loss as the cause, got %v and %v", term.Err(), context.Cause(working))
		}
		s.partition("a", false)
		// Nobody else has, and its own work has returned: it need not wait for its own lease to run out.
		until(t, "a leads again", 5*time.Second, a.believes)
		a.stop()
	})
}

func TestOneLostAnswerCostsNoTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		a := s.player(t, "a")
		until(t, "a leads", time.Second, a.believes)
		term, _ := a.current()
		var hang atomic.Bool
		s.mu.Lock()
		s.answer = func(_ string, r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch && hang.CompareAndSwap(true, false) {
				<-r.Context().Done() // an answer that never comes
				return nil, r.Context().Err()
			}
			return nil, nil
		}
		s.mu.Unlock()
		for range 100 {
			hang.Store(true)
			pass(12 * time.Second)
			if err := term.Err(); err != nil {
				t.Fatalf("the term has ended: %v", err)
			}
		}
		a.stop()
	})
}

func TestAnAcquisitionWhoseAnswerIsLostIsAdoptedAndAnotherIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.mu.Lock()
		s.lossy = func(client string, r *http.Request) bool { return client == "a" && r.Method == http.MethodPatch }
		s.mu.Unlock()
		a := s.player(t, "a")
		until(t, "the lease is held", time.Second, func() bool { return s.holder() == "a" })
		s.mu.Lock()
		s.lossy = nil
		acquired := *s.lease.Status.Term
		s.mu.Unlock()
		until(t, "a leads", time.Second, a.believes)
		term, _ := a.current()
		if diff := cmp.Diff(acquired, term.Info().ID); diff != "" {
			t.Errorf("term (-want +got):\n%s", diff)
		}
		// A term of the same identity is not the own one.
		s.change(func(l *v1alpha1.FencedLease) {
			l.Status.Generation, l.Status.Term = ptr.To(*l.Status.Generation+1), ptr.To("zzzzzzzz")
			l.Status.Token = ptr.To("x")
		})
		pass(time.Millisecond)
		if a.believes() {
			t.Error("a believes in a term that another process of its identity has")
		}
		between(t, "wait", 14*time.Second, 17*time.Second, until(t, "a leads again", time.Minute, a.believes))
		a.stop()
	})
}

func TestAnAcquisitionThatIsAlwaysRefusedMakesNoStorm(t *testing.T) {
	for name, answer := range map[string]struct {
		code   int
		reason metav1.StatusReason
	}{
		"by a rule":       {http.StatusUnprocessableEntity, metav1.StatusReasonInvalid},
		"as a conflict":   {http.StatusConflict, metav1.StatusReasonConflict},
		"as forbidden":    {http.StatusForbidden, metav1.StatusReasonForbidden},
		"by server error": {http.StatusInternalServerError, metav1.StatusReasonInternalError},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript()
				s.answer = func(_ string, r *http.Request) (*http.Response, error) {
					if r.Method != http.MethodPatch {
						return nil, nil
					}
					return failure(answer.code, answer.reason), nil
				}
				a := s.player(t, "a")
				pass(10 * time.Minute)
				// A pause is one to two seconds.
				if n := s.count("a PATCH"); n < 100 || n > 700 {
					t.Errorf("%d acquisitions in ten minutes", n)
				}
				if reason := a.lastReason(); reason == nil {
					t.Error("nobody was told why the elector does not lead")
				}
				a.stop()
			})
		})
	}
}

func TestAcquisitionsThatLoseEachRaceMakeNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.answer = func(_ string, r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch {
				s.change(func(l *v1alpha1.FencedLease) { l.Status.ObservedGeneration++ })
			}
			return nil, nil
		}
		a := s.player(t, "a")
		pass(10 * time.Minute)
		if n := s.count("a PATCH"); n < 100 || n > 700 {
			t.Errorf("%d acquisitions in ten minutes", n)
		}
		a.stop()
	})
}

func TestWorkEndsAsItWill(t *testing.T) {
	errWork := errors.New("work failed")
	for name, c := range map[string]struct {
		work func(ctx context.Context, term *Term) error
		want error
	}{
		"it returns nil":               {func(context.Context, *Term) error { return nil }, nil},
		"it returns an error":          {func(context.Context, *Term) error { return errWork }, errWork},
		"it ends its goroutine":        {func(context.Context, *Term) error { runtime.Goexit(); return nil }, ErrWorkExited},
		"it returns its term's answer": {func(_ context.Context, term *Term) error { return term.Ready(nil) }, nil}, //nolint:staticcheck // not used once ready
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript()
				elector, err := New(Options{Config: s.config("a"), Namespace: "reports", Name: "report-writer", Identity: "a"})
				if err != nil {
					t.Fatal(err)
				}
				err = elector.Run(klog.NewContext(t.Context(), logr.Discard()), c.work)
				if !errors.Is(err, c.want) {
					t.Errorf("Run: want %v, got %v", c.want, err)
				}
				if diff := cmp.Diff("", s.holder()); diff != "" {
					t.Errorf("holder (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestTwoWorksNeverRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		a := s.player(t, "a")
		a.mu.Lock()
		a.ignoring = true
		a.mu.Unlock()
		until(t, "a leads", time.Second, a.believes)
		first, _ := a.current()
		s.change(func(l *v1alpha1.FencedLease) { l.Status.HolderIdentity = ptr.To("") })
		pass(time.Hour)
		if diff := cmp.Diff("", s.holder()); diff != "" {
			t.Errorf("holder while the old work runs (-want +got):\n%s", diff)
		}
		if first.Err() == nil {
			t.Error("the first term has not ended")
		}
		a.mu.Lock()
		a.ignoring = false
		a.mu.Unlock()
		a.finish <- errors.New("late")
		until(t, "a leads again", time.Second, a.believes)
		if diff := cmp.Diff(2, a.works); diff != "" {
			t.Errorf("works (-want +got):\n%s", diff)
		}
		a.stop()
	})
}

func TestExitOnLossDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		a := s.player(t, "a", func(o *Options) { o.ExitOnLoss, o.ReleaseTimeout = true, 7*time.Second })
		a.mu.Lock()
		a.ignoring = true
		a.mu.Unlock()
		until(t, "a leads", time.Second, a.believes)
		s.delete()
		begin := time.Now()
		err := <-a.done
		between(t, "wait for the work", 7*time.Second, 7*time.Second+time.Millisecond, time.Since(begin))
		var lost *LostError
		if !errors.As(err, &lost) || !lost.Deleted || !errors.Is(err, ErrWorkRunning) {
			t.Errorf("Run: want the loss and %v, got %v", ErrWorkRunning, err)
		}
		a.finish <- nil
	})
}

func TestALeaseWithoutLimitForItsWorkWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		a := s.player(t, "a", func(o *Options) { o.ReleaseTimeout = -1 })
		a.mu.Lock()
		a.ignoring = true
		a.mu.Unlock()
		until(t, "a leads", time.Second, a.believes)
		a.cancel()
		pass(time.Hour)
		if !a.believes() || s.holder() != "a" {
			t.Error("the term of work that drains has ended")
		}
		a.finish <- nil
		if err := <-a.done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if diff := cmp.Diff("", s.holder()); diff != "" {
			t.Errorf("holder (-want +got):\n%s", diff)
		}
	})
}

// act is something that happens to one of two electors.
type act struct {
	after  time.Duration
	client string
	cut    bool
	delay  time.Duration
	finish bool
}

// All clocks are the same here. Whatever the network does, two electors never both believe that they lead: the renew
// deadline is shorter than what followers wait, and both count from the safe side.
func TestTermsNeverOverlap(t *testing.T) {
	clients := []string{"a", "b", "c"}
	rapid.Check(t, func(rt *rapid.T) {
		acts := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) act {
			return act{
				after:  time.Duration(rapid.IntRange(0, 6000).Draw(rt, "after")) * time.Millisecond,
				client: rapid.SampledFrom(clients).Draw(rt, "client"),
				cut:    rapid.Bool().Draw(rt, "cut"),
				delay:  time.Duration(rapid.SampledFrom([]int{0, 0, 1, 50, 900, 2500}).Draw(rt, "delay")) * time.Millisecond,
				finish: rapid.IntRange(0, 3).Draw(rt, "finish") == 0,
			}
		}), 1, 10).Draw(rt, "acts")
		conditions := rapid.Bool().Draw(rt, "conditions")
		var violation string
		terms := map[string]bool{}
		synctest.Test(t, func(t *testing.T) {
			s := newScript(func(l *v1alpha1.FencedLease) { l.Spec.LeaseDurationSeconds = 4 })
			var players []*player
			for _, name := range clients {
				players = append(players, s.player(t, name))
			}
			watch := func(d, often time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); {
					var leads []string
					for _, p := range players {
						if p.believes() {
							leads = append(leads, p.name)
							term, _ := p.current()
							terms[term.Info().ID] = true
						}
					}
					if len(leads) > 1 && violation == "" {
						violation = time.Now().String() + ": " + leads[0] + " and " + leads[1] + " both lead"
					}
					if conditions {
						s.change(func(l *v1alpha1.FencedLease) { l.Status.ObservedGeneration++ })
					}
					pass(often)
				}
			}
			for _, a := range acts {
				watch(a.after, 50*time.Millisecond)
				s.partition(a.client, a.cut)
				s.mu.Lock()
				s.delay[a.client] = a.delay
				s.mu.Unlock()
				if a.finish {
					for i, p := range players {
						if p.name != a.client {
							continue
						}
						p.cancel() // it releases, or its acquisition is under way
						<-p.done
						players[i] = s.player(t, p.name)
					}
				}
			}
			for _, name := range clients {
				s.partition(name, false)
				s.mu.Lock()
				s.delay[name] = 0
				s.mu.Unlock()
			}
			watch(30*time.Second, 250*time.Millisecond)
			alive := 0
			for _, p := range players {
				if p.believes() {
					alive++
				}
			}
			if alive != 1 && violation == "" {
				violation = "nobody leads long after the network has healed"
			}
			for _, p := range players {
				p.cancel()
			}
			for _, p := range players {
				<-p.done
			}
		})
		if violation != "" {
			rt.Fatal(violation)
		}
	})
}

func TestACandidateWhoseWatchDoesNotBeginReadsForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(held("silent"))
		var hanging atomic.Bool
		hanging.Store(true)
		s.answer = func(_ string, r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("watch") != "" && hanging.Load() {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return nil, nil
		}
		a := s.player(t, "a")
		between(t, "wait", 20*time.Second, 22*time.Second, until(t, "a leads", time.Minute, a.believes))
		hanging.Store(false)
		pass(2 * time.Minute)
		s.delete()
		pass(time.Millisecond)
		if a.believes() {
			t.Error("the watch was not made again")
		}
		a.stop()
	})
}
