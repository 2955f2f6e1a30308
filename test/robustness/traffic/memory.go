// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"slices"
	"sync"
	"time"

	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

const (
	// remembered is for how long a process remembers what it has done.
	remembered = int64(25 * time.Second)
	// gap is without how long an answer a process does not trust what it was told before.
	gap = int64(3 * time.Second)
	// doubted is for how long it then repeats what it remembers, and doubts in how many of its operations one does.
	doubted = int64(12 * time.Second)
	doubts  = 3
)

// memory is what a process remembers to have done to one object. When nothing was accepted for a while, because the store was
// restored for instance, it asks for some of that again: part of it may be undone.
type memory struct {
	mu   sync.Mutex
	done []remember
	last int64
	// repeat is what is asked for once more, until a time.
	repeat []remember
	until  int64
}

type remember struct {
	job string
	at  int64
}

// told notes what became of an operation.
func (m *memory) told(op *history.Op, object string) {
	if op.Outcome != history.OK || op.Verb.Reads() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last != 0 && op.Return-m.last > gap {
		m.repeat, m.until = slices.Clone(m.done), op.Return+doubted
	}
	m.last = op.Return
	if op.Object == object && token.IsBusinessOperation(op.Operation) && records(op.Verb) {
		m.done = append(m.done, remember{op.Operation, op.Return})
	}
	m.done = slices.DeleteFunc(m.done, func(one remember) bool { return one.at < op.Return-remembered })
}

// records tells whether a verb writes the object itself, which records its operation.
func records(verb history.Verb) bool {
	switch verb {
	case history.Create, history.Update, history.JSONPatch, history.MergePatch, history.Apply:
		return true
	default:
		return false
	}
}

// again returns an operation that is to be asked for once more, or nothing.
func (m *memory) again(which int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if which%doubts != 0 || len(m.repeat) == 0 || history.Now() > m.until {
		return ""
	}
	// Half of the time one of the newest third: what is undone is among these.
	from, chosen := m.repeat, which/doubts
	if chosen%2 == 0 {
		from = from[len(from)*2/3:]
	}
	return from[chosen/2%len(from)].job
}
