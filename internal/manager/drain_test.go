// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

const (
	drainDelay = 15 * time.Second
	anyPath    = "/fence/1"
)

// replica is what a story is told of.
type replica struct {
	*drain
	clock *clocktesting.FakeClock
	// end tells it to end, stop is its own end.
	end, stop context.CancelFunc
	// ended tells whether it has ended.
	ended func() bool
}

// inDrain runs a story of a replica. Each step sees the others' goroutines at rest.
func inDrain(t *testing.T, delay time.Duration, story func(t *testing.T, r replica)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		d := &drain{clock: clock, delay: delay}
		told, end := context.WithCancel(t.Context())
		defer end()
		running, stop := d.context(told)
		defer stop()
		synctest.Wait()
		story(t, replica{d, clock, end, stop, func() bool { return running.Err() != nil }})
	})
}

// answer asks a replica once: is it ready, does it answer, does it ask for the connection to be closed?
func answer(t *testing.T, d *drain) (ready bool, code int, closes bool) {
	t.Helper()
	handler := d.closing(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, anyPath, nil))
	return d.ready(nil) == nil, recorder.Code, recorder.Header().Get("Connection") == "close"
}

func TestDrain(t *testing.T) {
	inDrain(t, drainDelay, func(t *testing.T, r replica) {
		if ready, code, closes := answer(t, r.drain); !ready || code != http.StatusAccepted || closes {
			t.Errorf("before: want ready, an answer and an open connection; got %t, %d, %t", ready, code, closes)
		}
		r.clock.Step(time.Hour)
		synctest.Wait()
		if r.ended() {
			t.Error("it ended though nobody told it to")
		}

		r.end()
		synctest.Wait()
		if ready, code, closes := answer(t, r.drain); ready || code != http.StatusAccepted || !closes {
			t.Errorf("at once: want unready, an answer and a closed connection; got %t, %d, %t", ready, code, closes)
		}
		r.clock.Step(drainDelay - 1)
		synctest.Wait()
		if r.ended() {
			t.Error("it ended before the delay was over")
		}
		if _, code, _ := answer(t, r.drain); code != http.StatusAccepted {
			t.Errorf("until the delay is over: want an answer, got %d", code)
		}
		r.clock.Step(1)
		synctest.Wait()
		if !r.ended() {
			t.Error("it did not end after the delay")
		}
	})
}

func TestDrainWithoutADelay(t *testing.T) {
	inDrain(t, 0, func(t *testing.T, r replica) {
		r.end()
		synctest.Wait()
		r.clock.Step(0)
		synctest.Wait()
		if !r.ended() || r.ready(nil) == nil {
			t.Errorf("want an end at once and unready, got %t, %v", r.ended(), r.ready(nil))
		}
	})
}

// TestDrainStops shows that nothing is left of a replica that stops by itself, before or in its drain: the bubble of the
// test must be empty.
func TestDrainStops(t *testing.T) {
	for name, told := range map[string]bool{"before it was told to end": false, "in its drain": true} {
		t.Run(name, func(t *testing.T) {
			inDrain(t, drainDelay, func(t *testing.T, r replica) {
				if told {
					r.end()
					synctest.Wait()
				}
				r.stop()
				synctest.Wait()
				if !r.ended() {
					t.Error("want an ended context")
				}
				if r.clock.HasWaiters() {
					t.Error("a timer is left")
				}
				if told == (r.ready(nil) == nil) {
					t.Errorf("want unready exactly if told to end, got %v", r.ready(nil))
				}
			})
		})
	}
}

// TestConnectionsClose shows what a client sees: it must not send its next request over the connection.
func TestConnectionsClose(t *testing.T) {
	d := &drain{}
	server := httptest.NewServer(d.closing(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer server.Close()
	for _, ending := range []bool{false, true} {
		d.begun.Store(ending)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+anyPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
		if response.Close != ending {
			t.Errorf("ending %t: the client was told to close: %t", ending, response.Close)
		}
	}
}

// TestReviewsFinish shows that a review outlives the end of its server, and not the time that its caller waits.
func TestReviewsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, stop := context.WithCancel(t.Context())
		stop()
		var err error
		handler := finishing(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			err = r.Context().Err()
			<-r.Context().Done()
		}))
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(server, http.MethodPost, anyPath, nil))
		if err != nil {
			t.Errorf("the review was cancelled: %v", err)
		}
	})
}
