// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/pkg/token"
)

// story is a small history that is written down. Each call takes one unit of time.
type story struct {
	run Run
	now int64
}

const (
	fence  = "fence"
	retain = 2
)

func newStory() *story {
	return &story{run: Run{Retain: map[string]int{fence: retain}, Epochs: []Epoch{{}}, Faults: map[string]int{}}}
}

// of returns a token such as 33.aaaaaaaa for "33a".
func of(text string) token.Token {
	generation, term := text[:len(text)-1], strings.Repeat(text[len(text)-1:], 8)
	t, err := token.Parse(generation + "." + term)
	if err != nil {
		panic(err)
	}
	return t
}

func (s *story) epoch() *Epoch { return &s.run.Epochs[len(s.run.Epochs)-1] }

// when is the time of a record, which follows from the call.
func when(call int64) time.Time { return time.Unix(call, 0) }

// call adds a call, each by another writer.
func (s *story) call(verb Verb, operation, term string, outcome Outcome) *Call {
	last := len(s.run.Epochs) - 1
	c := &Call{
		ID: int64(len(s.run.Calls) + 1), Row: fence, Verb: verb, Operation: operation, Token: of(term),
		Invoke: s.now + 1, Return: s.now + 2, First: last, Last: last, Outcome: outcome,
	}
	c.Writer = "w" + c.Token.Term + string(rune('0'+c.ID%10))
	s.now += 2
	s.run.Calls = append(s.run.Calls, c)
	return c
}

// commit adds what a call should commit.
func (s *story) commit(c *Call) *Commit {
	position := int64(1)
	for _, commit := range s.epoch().Commits {
		position += int64(len(commit.Changes))
	}
	s.epoch().Commits = append(s.epoch().Commits, Commit{
		Row:       fence,
		Changes:   []Change{{Call: c.ID, Operation: c.Operation, Token: c.Token}},
		Records:   []Record{{Operation: c.Operation, Token: c.Token, Call: c.ID, AppliedAt: when(c.ID)}},
		Positions: []int64{position},
		Controls:  []Control{{Token: c.Token, Position: position}},
	})
	return &s.epoch().Commits[len(s.epoch().Commits)-1]
}

// applied is a call that has applied an operation.
func (s *story) applied(operation, term string) *story {
	c := s.call(Do, operation, term, Applied)
	c.Record = s.commit(c).Records[0]
	return s
}

// told is a call that is answered by the record of another call.
func (s *story) told(verb Verb, operation, term string, by int64) *story {
	c := s.call(verb, operation, term, Recorded)
	c.Record = Record{Operation: operation, Token: s.run.Calls[by-1].Token, Call: by, AppliedAt: when(by)}
	return s
}

func (s *story) not(verb Verb, operation, term string) *story {
	s.call(verb, operation, term, NotRecorded)
	return s
}

func (s *story) refused(operation, term, cause, stored string) *story {
	c := s.call(Do, operation, term, Refused)
	c.Cause, c.Stored = cause, of(stored)
	return s
}

// ends is a call with an outcome that may have committed.
func (s *story) ends(operation, term string, outcome Outcome, committed bool) *story {
	if c := s.call(Do, operation, term, outcome); committed {
		s.commit(c)
	}
	return s
}

// taken is a control row that a term has taken.
func (s *story) taken(term string) *story {
	c := s.call(Take, "", term, Taken)
	s.epoch().Commits = append(s.epoch().Commits, Commit{Row: fence, Controls: []Control{{Token: c.Token}}})
	return s
}

// restored puts back what was there after a number of commits, by a backup that was made after the newest call but some.
func (s *story) restored(commits int, callsSince int64) *story {
	old := len(s.run.Epochs) - 1
	s.run.Epochs = append(s.run.Epochs, Epoch{
		Commits: slices.Clone(s.run.Epochs[old].Commits[:commits]), Base: commits, Origin: old, Backup: s.now + 1 - 2*callsSince,
	})
	return s
}

// with changes the last call or the last commit.
func (s *story) with(call func(*Call), commit func(*Commit)) *story {
	if call != nil {
		call(s.run.Calls[len(s.run.Calls)-1])
	}
	if commit != nil {
		commit(&s.epoch().Commits[len(s.epoch().Commits)-1])
	}
	return s
}

func TestChecks(t *testing.T) {
	// A has applied j1 under 33.
	begin := func() *story { return newStory().applied("j1", "33a") }
	for name, c := range map[string]struct {
		story *story
		want  []string
	}{
		"operations under one term, then under the next": {story: begin().applied("j2", "33a").applied("j3", "34b")},
		"an older term applies after a newer one": {
			story: begin().applied("j2", "34b").applied("j3", "33a"), want: []string{neverFall}},
		"an older term applies after a newer one has taken the row": {
			story: begin().taken("34b").applied("j2", "33a"), want: []string{neverFall}},
		"another term of the same generation applies": {story: begin().applied("j2", "33b"), want: []string{neverFall}},

		"an operation is applied again at once":        {story: begin().applied("j1", "33a"), want: []string{once}},
		"an operation is applied again by a successor": {story: begin().applied("j2", "33a").applied("j1", "34b"), want: []string{once}},
		"an operation is applied again beyond the horizon": {
			story: begin().applied("j2", "33a").applied("j3", "33a").applied("j1", "33a")},
		"an operation that a restore has undone is applied again": {
			story: begin().applied("j2", "33a").restored(1, 1).applied("j2", "33a")},
		"an operation that a restore has not undone is applied again": {
			story: begin().applied("j2", "33a").restored(2, 0).applied("j2", "34b"), want: []string{once}},

		"a change without its record": {
			story: begin().with(nil, func(c *Commit) { c.Records, c.Positions = nil, nil }), want: []string{answers, together}},
		"a record without its change": {story: begin().with(nil, func(c *Commit) { c.Changes = nil }), want: []string{answers, together}},
		"the record of another term":  {story: begin().with(nil, func(c *Commit) { c.Records[0].Token = of("34b") }), want: []string{answers, together}},
		"a position is left out":      {story: begin().with(nil, func(c *Commit) { c.Positions[0] = 2 }), want: []string{together}},
		"the control row stays behind": {
			story: begin().with(nil, func(c *Commit) { c.Controls[0].Position = 0 }), want: []string{together}},
		"a change that nobody has asked for": {
			story: begin().with(func(c *Call) { c.Operation = "j9" }, nil), want: []string{attributed}},

		"applied, and is not there": {story: begin().with(nil, func(c *Commit) { *c = Commit{} }), want: []string{answers}},
		"a repetition is told":      {story: begin().told(Do, "j1", "33a", 1).told(Do, "j1", "34b", 1).told(Lookup, "j1", "34b", 1)},
		"a repetition is told of another operation": {
			story: begin().told(Do, "j2", "33a", 1), want: []string{answers}},
		"a repetition is told of what is not there": {
			story: begin().ends("j2", "33a", Failed, false).told(Do, "j2", "33a", 2), want: []string{answers}},
		"a repetition is told of what a restore has undone": {
			story: begin().applied("j2", "33a").restored(1, 1).told(Do, "j2", "33a", 2), want: []string{answers}},
		"a repetition is told of what the backup has": {story: begin().restored(1, 0).told(Do, "j1", "33a", 1)},
		"a repetition is told of what is applied later": {
			story: begin().told(Do, "j1", "33a", 1).with(func(c *Call) { c.Invoke, c.Return = 0, 0 }, nil), want: []string{answers}},
		"not applied, and it was": {story: begin().ends("j2", "33a", Failed, true), want: []string{answers}},
		"not applied, and an epoch that was undone has it": {
			story: begin().ends("j2", "33a", Failed, true).restored(1, 1).with(func(c *Call) { c.Last = 1 }, nil)},
		"not known, and it was":     {story: begin().ends("j2", "33a", Unknown, true)},
		"not known, and it was not": {story: begin().ends("j2", "33a", Unknown, false)},
		"refused as stale":          {story: begin().taken("34b").refused("j2", "33a", "StaleToken", "34b")},
		"refused as stale by what never was": {
			story: begin().taken("34b").refused("j2", "33a", "StaleToken", "35b"), want: []string{answers}},
		"refused as stale by itself": {story: begin().refused("j2", "33a", "StaleToken", "33a"), want: []string{answers}},
		"refused as forked":          {story: begin().refused("j2", "33b", "ForkedTerm", "33a")},
		"refused as forked by an older one": {
			story: begin().taken("34b").refused("j2", "34c", "ForkedTerm", "33a"), want: []string{answers}},
		"refused for another reason": {story: begin().refused("j2", "33a", "FutureToken", "34b"), want: []string{answers}},
		"refused, and it was applied": {
			story: begin().taken("34b").refused("j2", "33a", "StaleToken", "34b").with(nil, func(c *Commit) {
				c.Changes = []Change{{Call: 3, Operation: "j2", Token: of("33a")}}
			}), want: []string{answers, neverFall, together}},
		"taken, and the row is another's": {
			story: begin().taken("34b").with(nil, func(c *Commit) { c.Controls[0].Token = of("35c") }), want: []string{answers}},

		"not recorded, and it was never applied":   {story: begin().not(Lookup, "j2", "33a").not(Find, "j2", "33a")},
		"not recorded, and it was applied before":  {story: begin().not(Find, "j1", "33a"), want: []string{final}},
		"not recorded, and it is applied later":    {story: begin().not(Find, "j2", "33a").applied("j2", "33a")},
		"not recorded, and this term applies it":   {story: begin().not(Lookup, "j2", "33a").applied("j2", "33a")},
		"not recorded, and a later one applies it": {story: begin().not(Lookup, "j2", "33a").applied("j2", "34b")},
		"not recorded, and an older term applies it": {
			story: begin().not(Lookup, "j2", "34b").applied("j2", "33a"), want: []string{final}},
		"not recorded, and who does not know has applied it": {
			story: begin().ends("j2", "33a", Unknown, true).not(Lookup, "j2", "34b"), want: []string{final}},
		"not recorded, and it is beyond the horizon": {
			story: begin().not(Lookup, "j1", "34b").with(func(c *Call) { c.HorizonGeneration, c.HorizonTime = 33, when(1) }, nil)},
		"not recorded, and it is not beyond the horizon": {
			story: begin().applied("j2", "33a").not(Lookup, "j2", "34b").with(func(c *Call) { c.HorizonGeneration, c.HorizonTime = 33, when(1) }, nil),
			want:  []string{final}},

		"a backup does not have what was applied before it": {story: begin().applied("j2", "33a").restored(1, 0), want: []string{durable}},
		"an error of a fault":                               {story: begin().ends("j2", "33a", Failed, false).with(func(c *Call) { c.State = "57P01" }, nil)},
		"an error that no fault makes":                      {story: begin().ends("j2", "33a", Failed, false).with(func(c *Call) { c.State = "23505" }, nil), want: []string{expected}},
	} {
		t.Run(name, func(t *testing.T) {
			slices.Sort(c.want)
			found := Check(&c.story.run)
			if diff := cmp.Diff(c.want, slices.Sorted(maps.Keys(found))); diff != "" {
				t.Errorf("failing checks (-want +got):\n%s\n%s", diff, strings.Join(Shown(found), "\n"))
			}
		})
	}
}

// Every kind of repetition is counted as what it is.
func TestFigures(t *testing.T) {
	s := newStory().applied("j1", "33a").told(Do, "j1", "33a", 1).applied("j2", "33a").told(Do, "j1", "34b", 1)
	s.told(Do, "j2", "33a", 3).with(func(c *Call) { c.Invoke = s.run.Calls[2].Invoke }, nil) // at once
	s.ends("j3", "34b", Unknown, true).told(Do, "j3", "34b", 6).with(func(c *Call) { c.Writer = s.run.Calls[5].Writer }, nil)
	s.ends("j4", "34b", Unknown, false)
	s.ends("j5", "34b", Recorded, true).with(func(c *Call) {
		c.Fault, c.Record = LostAnswer, Record{Operation: "j5", Token: c.Token, Call: c.ID, AppliedAt: when(c.ID)}
	}, nil)
	s.refused("j6", "33a", "StaleToken", "34b").refused("j6", "34c", "ForkedTerm", "34b").applied("j1", "34b")
	s.restored(3, 2).told(Do, "j3", "34b", 6).applied("j5", "34b")
	s.run.Handovers = 2
	s.run.Faults[Restore] = 1
	want := Stats{
		handovers: 2, calls: 14, applied: 4, replayed: 5, older: 1, later: 1, atOnce: 1, unknown: 2, unknownDone: 1, unknownNever: 1, settled: 1,
		LostAnswer: 1, resolved: 1, stale: 1, forked: 1, beyondHorizon: 1, kept: 1, undone: 1, Restore: 1,
	}
	if diff := cmp.Diff(want, Count(&s.run)); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
}

// A run that did little is no proof.
func TestAnIdleRunFails(t *testing.T) {
	stats := Count(&newStory().applied("j1", "33a").run)
	if missing := stats.Least(Least()); len(missing) != len(Least()) {
		t.Errorf("want %d, got %d: %q", len(Least()), len(missing), missing)
	}
}
