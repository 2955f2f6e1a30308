// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// ending is how the leading of one term has ended.
type ending struct {
	// final says that Run returns, with err.
	final bool
	err   error
	// panicked is what the work panicked with, or nil.
	panicked *PanicError
}

// lead keeps the term, runs the work once it may begin, and releases the term if it was not lost. Working is the context of
// the work, which ends with ctx and with the term.
func (r *run) lead(ctx, working context.Context, term *Term, work func(context.Context, *Term) error) ending {
	logger := klog.FromContext(ctx)
	// Renewals go on when ctx has ended, as long as the work drains.
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	var keepers sync.WaitGroup
	keepers.Go(func() { r.renew(keeping, term) })
	keepers.Go(func() { r.guard(keeping, term) })

	reportLoss := sync.OnceFunc(func() { r.lost(ctx, term) })
	end := ending{}
	leads := r.awaitSeal(ctx, term)
	if leads {
		r.options.Metrics.Leading(true)
		logger.Info("Became leader", "lease", r.ref(), "identity", r.options.Identity, "token", term.info.Token().String())
		r.eventBegan(term)
		end = r.supervise(ctx, term, r.start(working, term, work), reportLoss)
	}
	stop()
	keepers.Wait()
	var lost *LostError
	if errors.As(term.Err(), &lost) {
		reportLoss()
	} else {
		r.release(context.WithoutCancel(ctx), term)
	}
	if leads {
		r.eventStopped(term)
	}
	switch {
	case end.final:
	case ctx.Err() != nil:
		end.final = true
		if end.err == nil {
			end.err = context.Cause(ctx)
		}
	case r.options.ExitOnLoss && lost != nil:
		end.final, end.err = true, lost
	}
	return end
}

// awaitSeal waits until the term may begin, and reports false if it ends before or ctx does.
func (r *run) awaitSeal(ctx context.Context, term *Term) bool {
	seen, _ := r.view.look()
	term.observe(seen)
	select {
	case <-term.ready:
	default:
		r.report(ctx, seen, fmt.Errorf("FencedLease %s: %w: guarded objects are still to be stamped with generation %d", r.writes, ErrSealPending, term.info.Generation))
	}
	return term.Ready(ctx) == nil
}

// worker is work that was started.
type worker struct {
	done chan outcome

	mu sync.Mutex
	// left says that nobody waits for the work any more.
	left bool
}

// outcome is how work has returned.
type outcome struct {
	err      error
	panicked *PanicError
	// lost is how the term was lost when the work returned, or nil.
	lost *LostError
}

// start runs the work in a goroutine of its own, as Run must be able to return while it runs.
func (r *run) start(ctx context.Context, term *Term, work func(context.Context, *Term) error) *worker {
	w := &worker{done: make(chan outcome, 1)}
	r.working.Store(true)
	go func() {
		result := outcome{err: ErrWorkExited}
		defer func() {
			if value := recover(); value != nil {
				result.panicked = &PanicError{Value: value, Stack: debug.Stack()}
			}
			_ = errors.As(term.Err(), &result.lost)
			r.working.Store(false)
			if !w.deliver(result) && result.panicked != nil {
				panic(result.panicked) // nobody else can show it
			}
		}()
		result.err = work(ctx, term)
	}()
	return w
}

// deliver hands over how the work has returned, and reports whether anybody takes it.
func (w *worker) deliver(result outcome) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left {
		return false
	}
	w.done <- result
	return true
}

// leave stops waiting for the work. It returns its outcome if it has returned just now.
func (w *worker) leave() (outcome, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case result := <-w.done:
		return result, true
	default:
		w.left = true
		return outcome{}, false
	}
}

// supervise waits until the work has returned, or may be waited for no longer.
func (r *run) supervise(ctx context.Context, term *Term, w *worker, reportLoss func()) ending {
	lost := term.done
	cancelled := ctx.Done()
	var late <-chan time.Time
	for {
		select {
		case result := <-w.done:
			return r.returned(ctx, term, result)
		case <-late:
			if result, ok := w.leave(); ok {
				return r.returned(ctx, term, result)
			}
			end := ending{final: true, err: ErrWorkRunning}
			var loss *LostError
			if errors.As(term.Err(), &loss) {
				end.err = errors.Join(loss, ErrWorkRunning)
			}
			return end
		case <-cancelled:
			cancelled = nil
		case <-lost:
			lost = nil
			reportLoss()
			if !r.options.ExitOnLoss {
				continue
			}
		}
		if late == nil && r.options.ReleaseTimeout > 0 {
			timer := r.options.Clock.NewTimer(r.options.ReleaseTimeout)
			defer timer.Stop()
			late = timer.C()
		}
	}
}

// returned says what follows from the return of the work.
func (r *run) returned(ctx context.Context, term *Term, result outcome) ending {
	end := ending{panicked: result.panicked, err: result.err}
	switch {
	case result.panicked != nil || result.lost == nil:
		end.final = true // by itself, or because ctx has ended
	case r.options.ExitOnLoss:
		end.final, end.err = true, result.lost
		if result.err != nil && !errors.Is(result.err, context.Canceled) {
			end.err = errors.Join(result.lost, result.err)
		}
	case ctx.Err() == nil && result.err != nil:
		// The next term's work starts anew, so this error ends here.
		klog.FromContext(ctx).Info("Work of a lost term returned an error", "lease", r.ref(), "token", term.info.Token().String(), "err", result.err)
		end.err = nil
	}
	return end
}
