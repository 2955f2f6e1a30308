// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// Names of the checks.
const (
	neverFall  = "generations never fall in the order of commits"
	once       = "no operation is applied again within the horizon"
	together   = "change and record are committed as one"
	attributed = "every change has its call"
	answers    = "every answer is true"
	final      = "what was not recorded was not applied"
	durable    = "nothing that was answered is lost"
	expected   = "every error comes of a fault"
)

// Check returns what violates the promise of the fence, by the names of the checks.
func Check(run *Run) map[string][]string {
	x := newIndex(run)
	found := map[string][]string{}
	for name, check := range map[string]func(*index) problems{
		neverFall: (*index).neverFall, once: (*index).once, together: (*index).together, attributed: (*index).attributed,
		answers: (*index).answers, final: (*index).final, durable: (*index).durable, expected: (*index).expected,
	} {
		if p := check(x); len(p) > 0 {
			found[name] = p
		}
	}
	return found
}

// shown bounds how many violations of one check are printed.
const shown = 5

// Shown are some violations of each check.
func Shown(found map[string][]string) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		all := found[name]
		for _, text := range all[:min(shown, len(all))] {
			lines = append(lines, name+": "+text)
		}
		if more := len(all) - shown; more > 0 {
			lines = append(lines, fmt.Sprintf("%s: %d more", name, more))
		}
	}
	return lines
}

type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// String describes a call.
func (c *Call) String() string {
	text := fmt.Sprintf("call %d of %s (%s %s %s of %s", c.ID, c.Writer, c.Verb, c.Operation, c.Token, c.Row)
	if c.Fault != "" {
		text += ", " + c.Fault
	}
	text += fmt.Sprintf("; epochs %d to %d, %d ms): %s", c.First, c.Last, (c.Return-c.Invoke)/int64(time.Millisecond), c.Outcome)
	switch {
	case c.Error != "":
		text += ": " + c.Error
	case c.Outcome == Recorded:
		text += fmt.Sprintf(" by call %d under %s", c.Record.Call, c.Record.Token)
	}
	return text
}

func (e *entry) String() string {
	return fmt.Sprintf("commit %d of epoch %d: call %d under %s", e.at, e.epoch, e.Call, e.Token)
}

// neverFall checks control rows and changes in the order of commits.
func (x *index) neverFall() (found problems) {
	for number, epoch := range x.Epochs {
		highest := map[string]token.Token{}
		for at, commit := range epoch.Commits {
			var all []token.Token
			for _, control := range commit.Controls {
				all = append(all, control.Token)
			}
			for _, change := range commit.Changes {
				all = append(all, change.Token)
			}
			for _, t := range all {
				switch h := highest[commit.Row]; {
				case t.Generation < h.Generation:
					found.add("commit %d of epoch %d is under %s, after one under %s", at, number, t, h)
				case t.Generation == h.Generation && t != h:
					found.add("commit %d of epoch %d is under %s, after one under the other term %s", at, number, t, h)
				default:
					highest[commit.Row] = t
				}
			}
		}
	}
	return found
}

// once checks that between two changes of one operation there are more others than are remembered.
func (x *index) once() (found problems) {
	for number := range x.Epochs {
		for k, entries := range x.byKey[number] {
			for i := 1; i < len(entries); i++ {
				if between := entries[i].nth - entries[i-1].nth; between <= x.Retain[k.row] {
					found.add("operation %s of %s was applied by %s and, %d changes later, by %s", k.operation, k.row, entries[i-1], between, entries[i])
				}
			}
		}
	}
	return found
}

// together checks that each transaction has one change with its record and the next position, or neither.
func (x *index) together() (found problems) {
	for number, epoch := range x.Epochs {
		positions := map[string]int64{}
		for at, commit := range epoch.Commits {
			switch {
			case len(commit.Changes) == 0 && len(commit.Records) == 0 && len(commit.Forgotten) == 0:
				continue
			case len(commit.Changes) != 1 || len(commit.Records) != 1 || len(commit.Controls) == 0:
				found.add("commit %d of epoch %d has changes %v, records %v and control rows %v", at, number, commit.Changes, commit.Records, commit.Controls)
				continue
			}
			change, record, control := commit.Changes[0], commit.Records[0], commit.Controls[len(commit.Controls)-1]
			positions[commit.Row]++
			if record.Operation != change.Operation || record.Token != change.Token || record.Call != change.Call || control.Token != change.Token ||
				commit.Positions[0] != positions[commit.Row] || control.Position != positions[commit.Row] {
				found.add("commit %d of epoch %d has change %v, record %v at %d and control row %v, the next position is %d",
					at, number, change, record, commit.Positions[0], control, positions[commit.Row])
			}
		}
	}
	return found
}

func (x *index) attributed() (found problems) {
	for number := range x.Epochs {
		for id, e := range x.byCall[number] {
			call := x.calls[id]
			if call == nil || call.Verb != Do || call.Row != e.row || call.Operation != e.Operation || call.Token != e.Token {
				found.add("%s, operation %s, is not what was called: %v", e, e.Operation, call)
			}
		}
	}
	return found
}

// answers checks what calls were told against the epochs in which they were under way.
func (x *index) answers() (found problems) {
	for _, call := range x.Calls {
		switch call.Outcome {
		case Applied:
			if call.Record.Call != call.ID || !x.span(call, func(e int) bool { return call.Record.isOf(x.byCall[e][call.ID]) }) {
				found.add("%s has no such change", call)
			}
		case Recorded:
			by := x.calls[call.Record.Call]
			if !x.span(call, func(e int) bool { return call.Record.isOf(x.byCall[e][call.Record.Call]) }) ||
				call.Record.Operation != call.Operation || by == nil || by.Invoke > call.Return {
				found.add("%s has no such record", call)
			}
		case Refused, Failed:
			// What an earlier epoch has committed, and a restore has undone, was not there to be found.
			for e := call.Last; e < len(x.Epochs); e++ {
				if applied := x.byCall[e][call.ID]; applied != nil {
					found.add("%s, and was applied: %s", call, applied)
				}
			}
			if call.Outcome == Refused && !x.refusedRightly(call) {
				found.add("%s by %s, which it never was, or is no reason", call, call.Stored)
			}
		case Taken:
			if !x.span(call, func(e int) bool {
				return x.controlled(e, call.Row, func(t token.Token) bool { return t == call.Token })
			}) {
				found.add("%s, and the control row was never its own", call)
			}
		case NotRecorded, Unknown:
		}
	}
	return found
}

func (x *index) controlled(epoch int, row string, f func(token.Token) bool) bool {
	return slices.ContainsFunc(x.Epochs[epoch].Commits, func(c Commit) bool {
		return c.Row == row && slices.ContainsFunc(c.Controls, func(control Control) bool { return f(control.Token) })
	})
}

func (x *index) refusedRightly(call *Call) bool {
	switch call.Cause {
	case string(fenced.StaleToken):
		if call.Stored.Generation <= call.Token.Generation {
			return false
		}
	case string(fenced.ForkedTerm):
		if call.Stored.Generation != call.Token.Generation || call.Stored.Term == call.Token.Term {
			return false
		}
	default:
		return false
	}
	return x.span(call, func(e int) bool {
		return x.controlled(e, call.Row, func(t token.Token) bool { return t == call.Stored })
	})
}

// final checks the answers that an operation is not recorded. To a term the answer is that no older one has applied it and
// none will; to who holds none that nobody had, who was told so before the call.
func (x *index) final() (found problems) {
	for _, call := range x.Calls {
		if call.Outcome != NotRecorded || call.First != call.Last || call.Last >= len(x.Epochs) {
			continue
		}
		for _, e := range x.byKey[call.Last][key{call.Row, call.Operation}] {
			if e.record == nil || e.Token.Generation <= call.HorizonGeneration && !e.record.AppliedAt.After(call.HorizonTime) {
				continue // it says that it does not know
			}
			by := x.calls[e.Call]
			before := by != nil && (by.Outcome == Applied || by.Outcome == Recorded) && by.Return < call.Invoke
			if before || call.Verb == Lookup && e.Token.Generation < call.Token.Generation {
				found.add("%s, and it was applied: %s", call, e)
			}
		}
	}
	return found
}

// durable checks that a backup has what was told of before it. That a crash loses nothing is a part of answers.
func (x *index) durable() (found problems) {
	for number, epoch := range x.Epochs {
		if number == 0 {
			continue
		}
		for _, call := range x.Calls {
			if call.Outcome == Applied && call.Return < epoch.Backup && call.Last <= epoch.Origin && x.byCall[epoch.Origin][call.ID] != nil && x.byCall[number][call.ID] == nil {
				found.add("%s is not in the backup of epoch %d", call, number)
			}
		}
	}
	return found
}

// faultStates are the classes and codes of errors that faults bring about: of connections, of a session that has paused for
// too long, of a server that ends or begins, of a request that is cancelled.
func faultStates() []string { return []string{"08", "25P03", "57"} }

func (x *index) expected() (found problems) {
	for _, call := range x.Calls {
		if call.State != "" && !slices.ContainsFunc(faultStates(), func(s string) bool { return strings.HasPrefix(call.State, s) }) {
			found.add("%s (state %s)", call, call.State)
		}
	}
	return found
}
