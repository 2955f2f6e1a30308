// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseview

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

var (
	keyA = types.NamespacedName{Namespace: "reports", Name: "a"}
	keyB = types.NamespacedName{Namespace: "reports", Name: "b"}
)

// newTestView returns a view with the given reader whose copy stays empty.
func newTestView(tb testing.TB, reader Reader, change ...func(*Options)) *View {
	tb.Helper()
	opts := Options{Reader: reader, Source: newServer()}
	for _, c := range change {
		c(&opts)
	}
	v, err := New(opts)
	if err != nil {
		tb.Fatalf("New: %v", err)
	}
	return v
}

func TestThousandReviewsCostFewReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The logical clock orders arrivals and the beginnings of reads.
		var logical, reads atomic.Int64
		reader := ReaderFunc(func(ctx context.Context, key types.NamespacedName) (*v1alpha1.FencedLease, error) {
			reads.Add(1)
			begin := logical.Add(1)
			select {
			case <-clock.RealClock{}.After(2 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return &v1alpha1.FencedLease{ObjectMeta: metav1.ObjectMeta{Name: key.Name, ResourceVersion: strconv.FormatInt(begin, 10)}}, nil
		})
		v := newTestView(t, reader)
		var wg sync.WaitGroup
		const reviewers, rounds = 1000, 5
		for i := range reviewers {
			wg.Go(func() {
				for range rounds {
					arrived := logical.Add(1)
					lease, err := v.Fresh(t.Context(), keyA)
					if err != nil {
						t.Errorf("reviewer %d: %v", i, err)
						return
					}
					if begin, _ := strconv.ParseInt(lease.ResourceVersion, 10, 64); begin <= arrived {
						t.Errorf("reviewer %d arrived at %d and was answered by a read begun at %d", i, arrived, begin)
					}
				}
			})
		}
		wg.Wait()
		if n := reads.Load(); n > 10*rounds {
			t.Errorf("%d reviews cost %d reads", reviewers*rounds, n)
		}
		if got := testutil.ToFloat64(v.opts.Metrics.reads.WithLabelValues(resultOK)); got != float64(reads.Load()) {
			t.Errorf("metric counts %v reads, want %d", got, reads.Load())
		}
		if got := testutil.ToFloat64(v.opts.Metrics.requests.WithLabelValues(resultOK)); got != reviewers*rounds {
			t.Errorf("metric counts %v requests, want %d", got, reviewers*rounds)
		}
	})
}

// call is one running Get of a scriptedReader.
type call struct {
	key   types.NamespacedName
	begin int64
	reply chan error
}

// scriptedReader answers when the test says so, or when its context ends.
type scriptedReader struct {
	logical atomic.Int64

	mu      sync.Mutex
	running map[types.NamespacedName][]*call
	begun   int
}

func newScriptedReader() *scriptedReader {
	return &scriptedReader{running: map[types.NamespacedName][]*call{}}
}

func (r *scriptedReader) Get(ctx context.Context, key types.NamespacedName) (*v1alpha1.FencedLease, error) {
	c := &call{key: key, reply: make(chan error, 1)}
	r.mu.Lock()
	c.begin = r.logical.Add(1)
	r.begun++
	r.running[key] = append(r.running[key], c)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		left := r.running[key][:0:0]
		for _, o := range r.running[key] {
			if o != c {
				left = append(left, o)
			}
		}
		r.running[key] = left
	}()
	select {
	case err := <-c.reply:
		if err != nil {
			return nil, err
		}
		return &v1alpha1.FencedLease{ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, ResourceVersion: strconv.FormatInt(c.begin, 10),
		}}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// calls returns the running reads of a lease.
func (r *scriptedReader) calls(key types.NamespacedName) []*call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*call(nil), r.running[key]...)
}

func (r *scriptedReader) total() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun
}

// review is one call of Fresh.
type review struct {
	key     types.NamespacedName
	arrived int64
	cancel  context.CancelFunc
	done    chan struct{}
	lease   *v1alpha1.FencedLease
	err     error
}

func startReview(ctx context.Context, v *View, r *scriptedReader, key types.NamespacedName) *review {
	rv := &review{key: key, arrived: r.logical.Add(1), done: make(chan struct{})}
	ctx, rv.cancel = context.WithCancel(ctx)
	go func() {
		defer close(rv.done)
		rv.lease, rv.err = v.Fresh(ctx, key)
	}()
	return rv
}

// outcome says what has become of a review: "waiting", "cancelled", "read <begin>" or "failed <error>".
func (rv *review) outcome() string {
	select {
	case <-rv.done:
	default:
		return "waiting"
	}
	switch {
	case rv.err == nil:
		return "read " + rv.lease.ResourceVersion
	case errors.Is(rv.err, context.Canceled):
		return "cancelled"
	default:
		return "failed " + errors.Unwrap(rv.err).Error()
	}
}

// step is one thing that happens: a review arrives, is given up, or the running read of a lease ends.
type step struct {
	Kind string
	Key  int
	Who  int
}

// modelRead is a read in the model: who waits for it and, once it has begun, its place in the order.
type modelRead struct{ waiting []int }

// TestSharingFollowsTheModel drives the sharing with random steps and compares, after each, every review's outcome and the
// running reads with a model of a dozen lines.
func TestSharingFollowsTheModel(t *testing.T) {
	keys := []types.NamespacedName{keyA, keyB}
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			Kind: rapid.SampledFrom([]string{"arrive", "arrive", "arrive", "give up", "succeed", "fail", "not found"}).Draw(t, "kind"),
			Key:  rapid.IntRange(0, len(keys)-1).Draw(t, "key"),
			Who:  rapid.IntRange(0, 1<<16).Draw(t, "who"),
		}
	}), 1, 60)
	rapid.Check(t, func(rt *rapid.T) {
		script := steps.Draw(rt, "steps")
		var failure error
		synctest.Test(t, func(t *testing.T) { failure = runScript(t, keys, script) })
		if failure != nil {
			rt.Fatal(failure)
		}
	})
}

func runScript(t *testing.T, keys []types.NamespacedName, script []step) error {
	reader := newScriptedReader()
	v := newTestView(t, reader)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var reviews []*review
	var want []string
	running, next := make([]*modelRead, len(keys)), make([]*modelRead, len(keys))
	begun := 0
	begin := func(k int, r *modelRead) {
		running[k] = r
		if r != nil {
			begun++
		}
	}
	drop := func(r *modelRead, who int) bool {
		for i, w := range r.waiting {
			if w == who {
				r.waiting = append(r.waiting[:i:i], r.waiting[i+1:]...)
				return true
			}
		}
		return false
	}
	for i, s := range script {
		k := s.Key
		switch s.Kind {
		case "arrive":
			who := len(reviews)
			reviews, want = append(reviews, startReview(ctx, v, reader, keys[k])), append(want, "waiting")
			if running[k] == nil {
				begin(k, &modelRead{[]int{who}})
			} else {
				if next[k] == nil {
					next[k] = &modelRead{}
				}
				next[k].waiting = append(next[k].waiting, who)
			}
		case "give up":
			if len(reviews) == 0 {
				continue
			}
			who := s.Who % len(reviews)
			reviews[who].cancel()
			if want[who] != "waiting" {
				break
			}
			want[who] = "cancelled"
			for k := range keys {
				// The order matters: the end of the running read makes the next one running.
				if next[k] != nil && drop(next[k], who) && len(next[k].waiting) == 0 {
					next[k] = nil
				}
				if running[k] != nil && drop(running[k], who) && len(running[k].waiting) == 0 {
					r := next[k]
					next[k] = nil
					begin(k, r)
				}
			}
		default:
			calls := reader.calls(keys[k])
			if len(calls) == 0 {
				continue
			}
			var reply error
			outcome := fmt.Sprintf("read %d", calls[0].begin)
			switch s.Kind {
			case "fail":
				reply = fmt.Errorf("quorum lost at step %d", i)
				outcome = "failed " + reply.Error()
			case "not found":
				reply = apierrors.NewNotFound(v1alpha1.Resource.GroupResource(), fmt.Sprint(i))
				outcome = "failed " + reply.Error()
			}
			calls[0].reply <- reply
			for _, who := range running[k].waiting {
				want[who] = outcome
				if reviews[who].arrived >= calls[0].begin {
					return fmt.Errorf("step %d: review %d would be answered by an earlier read", i, who)
				}
			}
			r := next[k]
			next[k] = nil
			begin(k, r)
		}
		synctest.Wait()

		var got []string
		for _, r := range reviews {
			got = append(got, r.outcome())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("step %d %v: outcomes (-want +got):\n%s", i, s, diff)
		}
		for k, key := range keys {
			wantRunning := 0
			if running[k] != nil {
				wantRunning = 1
			}
			if n := len(reader.calls(key)); n != wantRunning {
				return fmt.Errorf("step %d %v: %d reads of %s run, want %d", i, s, n, key, wantRunning)
			}
		}
		if n := reader.total(); n != begun {
			return fmt.Errorf("step %d %v: %d reads have begun, want %d", i, s, n, begun)
		}
	}
	cancel()
	synctest.Wait()
	for _, key := range keys {
		if n := len(reader.calls(key)); n != 0 {
			return fmt.Errorf("%d reads of %s outlive their callers", n, key)
		}
	}
	if len(v.reads.slots) != 0 {
		return fmt.Errorf("%d slots are left", len(v.reads.slots))
	}
	return nil
}

func TestReadOutlivesTheCallerThatStartedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := newScriptedReader()
		v := newTestView(t, reader)
		running := startReview(t.Context(), v, reader, keyA)
		synctest.Wait()
		first, second := startReview(t.Context(), v, reader, keyA), startReview(t.Context(), v, reader, keyA)
		synctest.Wait()
		reader.calls(keyA)[0].reply <- nil
		synctest.Wait()
		first.cancel()
		synctest.Wait()
		reader.calls(keyA)[0].reply <- nil
		synctest.Wait()
		got := []string{running.outcome(), first.outcome(), second.outcome()}
		if diff := cmp.Diff([]string{"read 2", "cancelled", "read 5"}, got); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
	})
}

func TestHangingReadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := newScriptedReader()
		v := newTestView(t, reader, func(o *Options) { o.ReadTimeout = 2 * time.Second })
		begin := time.Now()
		if _, err := v.Fresh(t.Context(), keyA); !errors.Is(err, ErrReadTimeout) {
			t.Errorf("Fresh: %v, want %v", err, ErrReadTimeout)
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("Fresh took %v of the bubble's time, want the timeout", took)
		}
		if got := testutil.ToFloat64(v.opts.Metrics.reads.WithLabelValues(resultError)); got != 1 {
			t.Errorf("metric counts %v failed reads, want 1", got)
		}
	})
}

func TestCallersDeadlineIsRespected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := newScriptedReader()
		v := newTestView(t, reader)
		for _, name := range []string{"the one that started the read", "one that waits for the next read"} {
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			_, err := v.Fresh(ctx, keyA)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v, want %v", name, err, context.DeadlineExceeded)
			}
			if took := time.Since(begin); took != 500*time.Millisecond {
				t.Errorf("%s: took %v of the bubble's time", name, took)
			}
			// Somebody else keeps a read running for the second round.
			other := startReview(t.Context(), v, reader, keyA)
			defer other.cancel()
			synctest.Wait()
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		before := reader.total()
		if _, err := v.Fresh(ended, keyB); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: %v, want %v", err, context.Canceled)
		}
		if reader.total() != before {
			t.Error("a caller that is gone started a read")
		}
	})
}

func TestStopEndsReadsAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := newScriptedReader()
		v := newTestView(t, reader)
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- v.Start(ctx) }()
		running := startReview(t.Context(), v, reader, keyA)
		synctest.Wait()
		next := startReview(t.Context(), v, reader, keyA)
		waited := make(chan error, 1)
		go func() { waited <- v.WaitFor(t.Context(), "999") }()
		synctest.Wait()
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("Start: %v", err)
		}
		synctest.Wait()
		for name, r := range map[string]*review{"running": running, "next": next} {
			if !errors.Is(r.err, ErrStopped) {
				t.Errorf("%s: %v, want %v", name, r.err, ErrStopped)
			}
		}
		if err := <-waited; !errors.Is(err, ErrStopped) {
			t.Errorf("WaitFor: %v, want %v", err, ErrStopped)
		}
		if _, err := v.Fresh(t.Context(), keyA); !errors.Is(err, ErrStopped) {
			t.Errorf("Fresh after the stop: %v, want %v", err, ErrStopped)
		}
		if err := v.Ready(); !errors.Is(err, ErrStopped) {
			t.Errorf("Ready after the stop: %v, want %v", err, ErrStopped)
		}
		if err := v.Start(t.Context()); err == nil {
			t.Error("a view could be started twice")
		}
		if n := len(reader.calls(keyA)); n != 0 {
			t.Errorf("%d reads run after the stop", n)
		}
	})
}

func TestNotFoundIsToldAsTheServerTellsIt(t *testing.T) {
	v := newTestView(t, ReaderFunc(func(context.Context, types.NamespacedName) (*v1alpha1.FencedLease, error) {
		return nil, apierrors.NewNotFound(v1alpha1.Resource.GroupResource(), "a")
	}))
	lease, err := v.Fresh(t.Context(), keyA)
	if lease != nil || !apierrors.IsNotFound(err) {
		t.Errorf("Fresh: %v, %v, want NotFound", lease, err)
	}
	for metric, c := range map[string]float64{
		"reads":    testutil.ToFloat64(v.opts.Metrics.reads.WithLabelValues(resultNotFound)),
		"requests": testutil.ToFloat64(v.opts.Metrics.requests.WithLabelValues(resultNotFound)),
	} {
		if c != 1 {
			t.Errorf("metric counts %v %s, want 1", c, metric)
		}
	}
	if problems, err := testutil.CollectAndLint(v.opts.Metrics); err != nil || len(problems) != 0 {
		t.Errorf("lint of the metrics: %v, %v", problems, err)
	}
}

func TestReaderWithoutAnswerIsAnError(t *testing.T) {
	v := newTestView(t, ReaderFunc(func(context.Context, types.NamespacedName) (*v1alpha1.FencedLease, error) {
		return nil, nil
	}))
	if lease, err := v.Fresh(t.Context(), keyA); lease != nil || err == nil {
		t.Errorf("Fresh: %v, %v, want an error", lease, err)
	}
}

func BenchmarkFresh(b *testing.B) {
	lease := &v1alpha1.FencedLease{ObjectMeta: metav1.ObjectMeta{Namespace: keyA.Namespace, Name: keyA.Name, ResourceVersion: "1"}}
	v := newTestView(b, ReaderFunc(func(context.Context, types.NamespacedName) (*v1alpha1.FencedLease, error) {
		return lease, nil
	}))
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := v.Fresh(b.Context(), keyA); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("64 together", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(64)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := v.Fresh(b.Context(), keyA); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}
