// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report judges a history and says how it went.
package report

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fencedlease/fencedlease/test/robustness/history"
	"github.com/fencedlease/fencedlease/test/robustness/index"
	"github.com/fencedlease/fencedlease/test/robustness/model"
	"github.com/fencedlease/fencedlease/test/robustness/validate"
)

const (
	// checkerTime bounds porcupine's work on one object. Not to know is a failure.
	checkerTime = 2 * time.Minute
	// shown bounds how many violations of one kind are printed; the file has all.
	shown = 5
	// Attempts is how often a valid holder may get no answer in a row after a fault.
	Attempts = 40

	summaryFile    = "summary.txt"
	violationsFile = "violations.txt"
)

// Judgement is what the checks say of a history.
type Judgement struct {
	Dir        string
	Violations []string
	Summary    string
	Stats      validate.Stats
}

// Total sums up several runs.
type Total struct {
	Runs, Violations, Operations, Commits, Handovers, Late, InFlight, LateCreates, Faults int
}

// Add adds a run.
func (t *Total) Add(j *Judgement) {
	t.Runs++
	t.Violations += len(j.Violations)
	t.Operations += j.Stats.Operations
	t.Commits += j.Stats.Commits
	t.Handovers += j.Stats.Handovers
	t.Late += j.Stats.Late
	t.InFlight += j.Stats.InFlight
	t.LateCreates += j.Stats.LateCreates
	for _, n := range j.Stats.Faults {
		t.Faults += n
	}
}

// String says what the runs came to.
func (t *Total) String() string {
	return fmt.Sprintf("%d runs: %d operations, %d commits, %d handovers, %d writes sent after their term had ended, %d in flight at its end and committed, %d late creates, %d faults: %d violations",
		t.Runs, t.Operations, t.Commits, t.Handovers, t.Late, t.InFlight, t.LateCreates, t.Faults, t.Violations)
}

// Judge checks a history folder. It writes the summary, the violations, and porcupine's page of each object that failed
// into it.
func Judge(dir string, least validate.Minimum) (*Judgement, error) {
	run, err := history.Load(dir)
	if err != nil {
		return nil, err
	}
	x := index.New(run)
	j := &Judgement{Dir: dir, Stats: validate.Count(x)}
	begun := time.Now()
	for _, check := range slices.Concat([]validate.Check{validate.Preconditions(least)}, validate.Checks(), []validate.Check{validate.Available(Attempts)}) {
		for _, violation := range check.Run(x) {
			j.Violations = append(j.Violations, check.Name+": "+violation)
		}
	}
	validated := time.Since(begun)
	results := model.Check(x, checkerTime)
	operations := 0
	var checker, longest time.Duration
	var errs []error
	for _, result := range results {
		operations += result.Operations
		checker += result.Took
		longest = max(longest, result.Took)
		if result.Outcome == porcupine.Ok {
			continue
		}
		page := filepath.Join(dir, "porcupine-"+result.Lease.Name+"-"+result.Object+".html")
		errs = append(errs, result.Visualize(page))
		j.Violations = append(j.Violations, fmt.Sprintf("the history is linearizable: porcupine says %s of %s/%s, see %s: %s",
			result.Outcome, result.Lease.Namespace, result.Object, filepath.Base(page), result.Explain()))
	}
	var text strings.Builder
	Summarize(&text, x, j.Stats)
	_, _ = fmt.Fprintf(&text, "checks: validators %s; porcupine %d operations of %d objects in %s, the longest %s\n",
		validated.Round(time.Millisecond), operations, len(results), checker.Round(time.Millisecond), longest.Round(time.Millisecond))
	_, _ = fmt.Fprintf(&text, "violations: %d\n", len(j.Violations))
	j.Summary = text.String()
	errs = append(errs,
		os.WriteFile(filepath.Join(dir, summaryFile), []byte(j.Summary), 0o600),
		os.WriteFile(filepath.Join(dir, violationsFile), []byte(strings.Join(j.Violations, "\n")+"\n"), 0o600))
	return j, errors.Join(errs...)
}

// Shown returns the violations to print: some of each kind.
func (j *Judgement) Shown() []string {
	var some []string
	counts := map[string]int{}
	for _, violation := range j.Violations {
		kind, _, _ := strings.Cut(violation, ":")
		if counts[kind]++; counts[kind] <= shown {
			some = append(some, violation)
		}
	}
	for kind, n := range counts {
		if n > shown {
			some = append(some, fmt.Sprintf("%s: %d more", kind, n-shown))
		}
	}
	return some
}

// Summarize prints the figures of a history.
func Summarize(out io.Writer, x *index.Index, s validate.Stats) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	meta := x.Run.Meta
	say("scenario %s, seed %d, %s of traffic, %d epochs of the store", meta.Scenario, meta.Seed,
		time.Duration(meta.End-meta.Begin).Round(time.Second), len(meta.Epochs))
	say("%d operations, %d commits (%d stamps), %d handovers, %d releases", s.Operations, s.Commits, s.Stamps, s.Handovers, s.Releases)
	say("writes sent after their term had ended: %d; in flight at its end and committed after it: %d; late creates: %d, of which the product has deleted %d", s.Late, s.InFlight, s.LateCreates, s.Removed)
	say("unanswered writes that were committed: %d; commits by one of several unanswered deletes: %d; commits while a lease was deleted: %d",
		s.UnknownResolved, s.UnsureDeletes, s.Unguarded)
	r := s.Repetitions
	say("business operations: %d applied, %d repetitions told so: %d after a newer operation, %d under a later generation, %d after a lost answer, %d sent by two processes at once, %d of what a restore had kept, %d with the annotation as stored",
		r.Applied, r.Told, r.Older, r.Later, r.Lost, r.AtOnce, r.Kept, r.Inherited)
	say("applied again as the record was gone: %d, as a restore had undone it: %d, as a credential presents no annotation that is as stored: %d", r.Forgotten, r.Undone, r.Unseen)
	say("refusals of terms that a restore had brought back: %d", s.BroughtBack)
	outcomes := []history.Outcome{history.OK, history.Refused, history.Early, history.Failed, history.NotSent, history.Unknown}
	row := func(name string, counts map[history.Outcome]int) {
		text := fmt.Sprintf("%-18s", name)
		for _, outcome := range outcomes {
			text += fmt.Sprintf("%10d", counts[outcome])
		}
		say("%s", text)
	}
	heading := fmt.Sprintf("%-18s", "")
	for _, outcome := range outcomes {
		heading += fmt.Sprintf("%10s", outcome)
	}
	say("%s", heading)
	for _, verb := range slices.Sorted(maps.Keys(s.Verbs)) {
		row(string(verb), s.Verbs[verb])
	}
	for _, carrier := range slices.Sorted(maps.Keys(s.Carriers)) {
		row("by "+string(carrier), s.Carriers[carrier])
	}
	say("refusals: %s", counted(s.Causes))
	say("faults that took effect: %s", counted(s.Faults))
	say("longest row of attempts without an answer after a fault: %d", s.LongestStreak)
}

func counted(counts map[string]int) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", key, counts[key]))
	}
	return strings.Join(parts, ", ")
}
