// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults breaks parts of a run for a while, one fault after the other, and records each with its begin, its end
// and how it was seen to take effect.
package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// Fault is something that can be broken.
type Fault struct {
	// Kind and Target name it.
	Kind, Target string
	// Hold bounds how long it lasts, chosen at random.
	Hold [2]time.Duration
	// Begin breaks it, and End mends it and returns when it works again. Effect, if not nil, is asked before End and says what
	// was seen of it, or nothing if it had no effect.
	Begin, End func(ctx context.Context) error
	Effect     func(ctx context.Context) string
}

// Injector runs faults and records them.
type Injector struct {
	Log    *history.Log
	Random *rand.Rand
	// Say is told what happens.
	Say func(format string, args ...any)
}

// Inject runs one fault from begin to end.
func (i *Injector) Inject(ctx context.Context, fault Fault) error {
	hold := fault.Hold[0]
	if spread := fault.Hold[1] - fault.Hold[0]; spread > 0 {
		hold += time.Duration(i.Random.Int64N(int64(spread)))
	}
	entry := history.Fault{Kind: fault.Kind, Target: fault.Target, Begin: history.Now(), Detail: hold.Round(time.Millisecond).String(), Effect: "done"}
	i.Say("fault %s of %s for %s", fault.Kind, fault.Target, entry.Detail)
	err := fault.Begin(ctx)
	if err == nil {
		err = history.Sleep(ctx, hold)
	}
	if fault.Effect != nil {
		entry.Effect = fault.Effect(ctx)
	}
	// It is mended in any case, so that the run can go on or end in order.
	err = errors.Join(err, fault.End(ctx))
	entry.End = history.Now()
	if err != nil {
		return fmt.Errorf("inject %s of %s: %w", fault.Kind, fault.Target, err)
	}
	i.Say("fault %s of %s is over after %s: %s", fault.Kind, fault.Target, time.Duration(entry.End-entry.Begin).Round(time.Millisecond), entry.Effect)
	return i.Log.Write(entry)
}

// KindPause is the kind of Pause.
const KindPause = "SIGSTOP"

// KindNetwork returns the kind of Network for a mode.
func KindNetwork(mode env.ProxyMode) string { return "network " + mode.String() }

// Pausable is a process that can be stopped in its tracks.
type Pausable interface {
	Pause() error
	Continue() error
}

// Pause stops a process in its tracks for a while.
func Pause(target string, p Pausable, hold [2]time.Duration) Fault {
	return Fault{
		Kind: KindPause, Target: target, Hold: hold,
		Begin: func(context.Context) error { return p.Pause() },
		End:   func(context.Context) error { return p.Continue() },
	}
}

// Network changes what a proxy between two parties does, for a while.
func Network(target string, proxy *env.Proxy, mode env.ProxyMode, delay time.Duration, hold [2]time.Duration) Fault {
	var before int64
	return Fault{
		Kind: KindNetwork(mode), Target: target, Hold: hold,
		Begin: func(context.Context) error {
			before = proxy.Affected()
			proxy.Set(mode, delay)
			return nil
		},
		End: func(context.Context) error {
			proxy.Set(env.ProxyPass, 0)
			return nil
		},
		Effect: func(context.Context) string {
			if n := proxy.Affected() - before; n > 0 {
				return fmt.Sprintf("%d transfers or connections", n)
			}
			return ""
		},
	}
}
