//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlfence_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencedlease/fencedlease/pkg/sqlfence"
	"github.com/fencedlease/fencedlease/test/postgres"
)

// in returns the destination for a part of a test.
func (d *destination) in(t *testing.T) *destination {
	part := *d
	part.T = t
	return &part
}

func (d *destination) proxy() *postgres.Proxy {
	d.Helper()
	proxy, err := server.StartProxy(d.Context())
	d.must(err)
	d.Cleanup(func() { d.must(proxy.Close()) })
	return proxy
}

// result is what a call of Do has returned.
type result struct {
	outcome sqlfence.Outcome
	err     error
}

func (d *destination) start(fence *sqlfence.Fence, t *term, operation string) <-chan result {
	done := make(chan result, 1)
	go func() {
		outcome, err := fence.Do(d.Context(), operation, write(t, operation))
		done <- result{outcome, err}
	}()
	return done
}

func (d *destination) await(what string, done <-chan result) result {
	d.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(patience):
		d.Fatalf("%s does not return", what)
		return result{}
	}
}

// A leader pauses at each message that its transaction sends, from the one that begins it to the one that commits it, while
// the next one writes. In the first story it goes on as soon as the next leader waits for it; in the second it is away for
// so long that the database ends its session. Whatever the point: what was committed is in the order of generations, an
// operation that both ask for is applied once, and each call returns what the database shows.
func TestATransactionThatPausesAtAnyPointNeverFollowsANewerGeneration(t *testing.T) {
	messages := messagesOfACall(t)
	if len(messages) < 10 {
		t.Fatalf("only %d messages", len(messages))
	}
	for name, s := range map[string]story{
		"it returns in time, another operation":                   {},
		"it returns in time, the same operation":                  {same: true},
		"it returns in time, the same operation, the first ever":  {same: true, first: true},
		"it is away too long, another operation":                  {long: true},
		"it is away too long, the same operation":                 {long: true, same: true},
		"it is away too long, the same operation, the first ever": {long: true, same: true, first: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDestination(t)
			held, told := 0, 0
			for pause, message := range messages {
				if s.long && !message.Begins {
					// A process that pauses has sent the rest; the database takes no session for idle before.
					continue
				}
				told++
				t.Run(fmt.Sprintf("message %d", pause), func(t *testing.T) {
					if s.pauseAt(d.in(t), pause) {
						held++
					}
				})
			}
			if held == 0 || held == told {
				t.Errorf("the next leader had to wait at %d of %d messages, so nothing was shown", held, told)
			}
		})
	}
}

// maxPause is long enough that a busy machine does not end a session by itself.
const maxPause = 300 * time.Millisecond

// story is what happens around a pause: whether the database ends the session, whether both leaders ask for the same
// operation, and whether nobody has written under the lease before.
type story struct{ long, same, first bool }

// messagesOfACall returns what a call of Do sends once its connection is made.
func messagesOfACall(t *testing.T) []postgres.Message {
	t.Helper()
	d := newDestination(t)
	proxy := d.proxy()
	db := postgres.OpenT(t, proxy.DSN(d.name))
	d.must(db.PingContext(t.Context()))
	before := len(proxy.Messages())
	_, err := d.fenceOn(db, termA()).Do(t.Context(), "job-a", write(termA(), "job-a"))
	d.must(err)
	return proxy.Messages()[before:]
}

// pauseAt tells the story, and returns whether the next leader had to wait.
func (s story) pauseAt(d *destination, pause int) (waited bool) {
	d.Helper()
	t := d.T
	d.exec("TRUNCATE history, fencedlease_control, fencedlease_operations")
	var want []entry
	if !s.first {
		d.do(termA(), "before")
		want = append(want, entry{"before", 33})
	}
	proxy := d.proxy()
	db := postgres.OpenT(t, proxy.DSN(d.name))
	d.must(db.PingContext(t.Context()))
	count := -1
	hold := proxy.Hold(func(postgres.Message) bool { count++; return count == pause })
	operationOfB := "job-b"
	if s.same {
		operationOfB = "job-a"
	}
	options := sqlfence.Options{MaxPause: -1}
	if s.long {
		options.MaxPause = maxPause
	}

	a := d.start(d.fenceOn(db, termA(), options), termA(), "job-a")
	select {
	case <-hold.Entered():
	case r := <-a:
		t.Fatalf("the first leader has not come that far: %v", r.err)
	}
	b := d.start(d.fence(termB()), termB(), operationOfB)
	var ofB result
	returned := false
	d.eventually("the next leader is done, or waits", func() bool {
		select {
		case ofB = <-b:
			returned = true
		default:
			waited = waited || d.waiting() > 0
		}
		return returned || waited && !s.long
	})
	hold.Release()
	if !returned {
		ofB = d.await("the next leader", b)
	}
	ofA := d.await("the paused leader", a)

	d.must(ofB.err)
	if errors.Is(ofA.err, sqlfence.ErrUnknown) {
		t.Errorf("the outcome of the paused leader is not known: %v", ofA.err)
	}
	if ofA.err == nil && ofA.outcome.Generation == 33 {
		want = append(want, entry{"job-a", 33})
	}
	if ofB.outcome.Generation == 34 {
		want = append(want, entry{operationOfB, 34})
	}
	d.showsHistory(want...)
	if returned && ofB.outcome.Generation == 34 && ofA.err == nil && ofA.outcome.Generation != 34 {
		t.Errorf("the paused leader has committed after the next one: %+v", ofA.outcome)
	}
	if s.same && ofA.err == nil && ofA.outcome.AppliedAt != ofB.outcome.AppliedAt {
		t.Errorf("two records of one operation: %+v and %+v", ofA.outcome, ofB.outcome)
	}
	return waited
}
