// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// defaultLease is the lease of commands that name none.
const defaultLease = "writer"

// indent begins the lines that tell what came of a command.
const indent = "  "

// Play runs a script and returns it with what came of each command. An error means that the script is wrong, or that the
// backend could not tell.
func Play(ctx context.Context, script string, backend Backend) (string, error) {
	s := &story{backend: backend, last: map[claim]term{}, pending: map[string]pendingWrite{}}
	for number, line := range strings.Split(strings.TrimRight(script, "\n"), "\n") {
		if strings.HasPrefix(line, indent) {
			continue
		}
		s.out.WriteString(line + "\n")
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.command(ctx, line); err != nil {
			return s.out.String(), fmt.Errorf("line %d, %q: %w", number+1, line, err)
		}
	}
	if len(s.pending) > 0 {
		return s.out.String(), fmt.Errorf("these writes are never resumed: %s", strings.Join(slices.Sorted(maps.Keys(s.pending)), ", "))
	}
	return s.out.String(), nil
}

// story is a script being played.
type story struct {
	backend Backend
	out     strings.Builder
	// terms are all terms, T1 first, and last the last one that somebody acquired of a lease.
	terms      []term
	last       map[claim]term
	operations int
	pending    map[string]pendingWrite
}

type claim struct{ lease, holder string }

type term struct {
	name  string
	lease string
	token token.Token
}

type pendingWrite struct {
	write   Write
	pending Pending
}

func (s *story) say(format string, args ...any) { fmt.Fprintf(&s.out, indent+format+"\n", args...) }

// words are the parts of a command: its words, and its settings.
type words struct {
	plain    []string
	settings map[string]string
}

func split(line string) words {
	w := words{settings: map[string]string{}}
	for _, field := range strings.Fields(line) {
		key, value, isSetting := strings.Cut(field, "=")
		switch {
		case isSetting:
			w.settings[key] = value
		case field == "finalizer":
			w.settings[field] = "yes"
		default:
			w.plain = append(w.plain, field)
		}
	}
	return w
}

// only reports what a command does not know.
func (w words) only(count int, settings ...string) error {
	if len(w.plain) != count {
		return fmt.Errorf("want %d words, got %d", count, len(w.plain))
	}
	for key := range w.settings {
		if !slices.Contains(settings, key) {
			return fmt.Errorf("unknown setting %s", key)
		}
	}
	return nil
}

func (s *story) command(ctx context.Context, line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	w := split(rest)
	switch verb {
	case "lease":
		return errors.Join(w.only(1, "handover", "enforcement", "lateCreates"), s.setLease(ctx, w))
	case "delete-lease":
		return errors.Join(w.only(1), s.backend.DeleteLease(ctx, strings.Join(w.plain, " ")))
	case "acquire":
		return errors.Join(w.only(1, "lease"), s.acquire(ctx, w))
	case "release":
		return errors.Join(w.only(1, "lease"), s.release(ctx, w))
	case "pause":
		name, write, _ := strings.Cut(rest, " ")
		return s.pause(ctx, name, write)
	case "resume":
		return s.resume(ctx, rest)
	case "settle":
		if err := s.backend.Settle(ctx, rest); err != nil {
			return err
		}
		return s.show(ctx, "settled", rest)
	default:
		write, err := s.write(line)
		if err != nil {
			return err
		}
		outcome, err := s.backend.Do(ctx, write)
		if err != nil {
			return err
		}
		return s.show(ctx, string(outcome), write.Object)
	}
}

func (s *story) setLease(ctx context.Context, w words) error {
	if len(w.plain) != 1 {
		return nil
	}
	lease := Lease{
		Name: w.plain[0], Handover: v1alpha1.HandoverLazy, Enforcement: v1alpha1.EnforcementEnforce, LateCreates: v1alpha1.LateCreatesReport,
	}
	if v := w.settings["handover"]; v != "" {
		lease.Handover = v1alpha1.Handover(v)
	}
	if v := w.settings["enforcement"]; v != "" {
		lease.Enforcement = v1alpha1.Enforcement(v)
	}
	if v := w.settings["lateCreates"]; v != "" {
		lease.LateCreates = v1alpha1.LateCreates(v)
	}
	return s.backend.SetLease(ctx, lease)
}

// leasesOf returns the leases that a command is about.
func (w words) leases() []string {
	if v := w.settings["lease"]; v != "" {
		return strings.Split(v, ",")
	}
	return []string{defaultLease}
}

func (s *story) acquire(ctx context.Context, w words) error {
	if len(w.plain) != 1 {
		return nil
	}
	of := claim{w.leases()[0], w.plain[0]}
	t, err := s.backend.Acquire(ctx, of.lease, of.holder)
	if err != nil {
		return err
	}
	if before := s.highest(of.lease); t.Generation <= before {
		return fmt.Errorf("generation %d after %d", t.Generation, before)
	}
	opened := term{name: "T" + strconv.Itoa(len(s.terms)+1), lease: of.lease, token: t}
	s.terms, s.last[of] = append(s.terms, opened), opened
	s.say("%s holds %s under %s", of.holder, of.lease, opened.name)
	return nil
}

// highest returns the highest generation that a lease has had, under this name.
func (s *story) highest(lease string) int64 {
	var highest int64
	for _, t := range s.terms {
		if t.lease == lease {
			highest = max(highest, t.token.Generation)
		}
	}
	return highest
}

func (s *story) release(ctx context.Context, w words) error {
	if len(w.plain) != 1 {
		return nil
	}
	of := claim{w.leases()[0], w.plain[0]}
	held, ok := s.last[of]
	if !ok {
		return fmt.Errorf("%s has never held %s", of.holder, of.lease)
	}
	outcome, err := s.backend.Release(ctx, of.lease, of.holder, held.token)
	if err != nil {
		return err
	}
	s.say("%s", outcome)
	return nil
}

// write reads a write.
func (s *story) write(line string) (Write, error) {
	verb, rest, _ := strings.Cut(line, " ")
	w := split(rest)
	write := Write{Verb: Verb(verb), By: ByAnnotation, Tokens: map[string]string{}, Lease: w.leases()[0], Reason: w.settings["reason"]}
	_, write.Finalizer = w.settings["finalizer"]
	count := 3
	switch write.Verb {
	case Create, Update, Replace, Status, Scale:
	case Strip, Intend, Delete, Finalize:
		count = 2
	default:
		return write, fmt.Errorf("unknown command %q", verb)
	}
	if err := w.only(count, "by", "as", "lease", "reason", "finalizer"); err != nil {
		return write, err
	}
	write.Object = w.plain[1]
	if count == 3 {
		write.Value = w.plain[2]
	}
	if by := w.settings["by"]; by != "" {
		write.By = Carrier(by)
	}
	if write.By == ByNothing || write.Verb == Strip {
		return write, nil
	}
	s.operations++
	operation := strconv.Itoa(s.operations)
	if write.Verb == Intend {
		operation = token.OperationDelete
	}
	for _, lease := range w.leases() {
		t, err := s.presented(claim{lease, w.plain[0]}, w.settings["as"])
		if err != nil {
			return write, err
		}
		t, err = t.WithOperation(operation)
		if err != nil {
			return write, err
		}
		write.Tokens[lease] = t.String()
	}
	return write, nil
}

// presented returns the token that a write presents: the last of its writer, or what as says.
func (s *story) presented(of claim, as string) (token.Token, error) {
	if as == "" {
		held, ok := s.last[of]
		if !ok {
			return token.Token{}, fmt.Errorf("%s has never held %s", of.holder, of.lease)
		}
		return held.token, nil
	}
	name, above, _ := strings.Cut(strings.TrimSuffix(as, "~"), "+")
	i := slices.IndexFunc(s.terms, func(t term) bool { return t.name == name })
	if i < 0 {
		return token.Token{}, fmt.Errorf("there is no term %s", name)
	}
	t := s.terms[i].token
	if strings.HasSuffix(as, "~") {
		return token.New(t.Generation, otherTerm)
	}
	if above != "" {
		n, err := strconv.ParseInt(above, 10, 64)
		if err != nil {
			return token.Token{}, err
		}
		return token.New(t.Generation+n, otherTerm)
	}
	return t, nil
}

// otherTerm is a term that nobody ever had.
const otherTerm = "otherone"

func (s *story) pause(ctx context.Context, name, line string) error {
	write, err := s.write(line)
	if err != nil {
		return err
	}
	pending, err := s.backend.Begin(ctx, write)
	if err != nil {
		return err
	}
	s.pending[name] = pendingWrite{write, pending}
	s.say("admitted, waits before its commit")
	return nil
}

func (s *story) resume(ctx context.Context, name string) error {
	waiting, ok := s.pending[name]
	if !ok {
		return fmt.Errorf("no write %s waits", name)
	}
	delete(s.pending, name)
	outcome, err := waiting.pending.Finish(ctx)
	if err != nil {
		return err
	}
	if waiting.write.Verb == Create && outcome == OK {
		// What becomes of a late create is seen when it has settled.
		s.say("%s", outcome)
		return nil
	}
	return s.show(ctx, string(outcome), waiting.write.Object)
}

// show tells what came of a command, and the object as it is stored.
func (s *story) show(ctx context.Context, what, name string) error {
	o, err := s.backend.Get(ctx, name)
	if err != nil {
		return err
	}
	if o == nil {
		s.say("%s; %s: gone", what, name)
		return nil
	}
	parts := []string{"value=" + o.Value}
	if o.Phase != "" {
		parts = append(parts, "phase="+o.Phase)
	}
	if o.Replicas != 1 {
		parts = append(parts, "replicas="+strconv.FormatInt(o.Replicas, 10))
	}
	for _, lease := range slices.Sorted(maps.Keys(o.Marks)) {
		parts = append(parts, lease+"="+s.name(lease, o.Marks[lease]))
	}
	if o.Terminating {
		parts = append(parts, "terminating")
	}
	s.say("%s; %s: %s", what, name, strings.Join(parts, " "))
	return nil
}

// name returns a mark with the name of its term.
func (s *story) name(lease, mark string) string {
	t, err := token.Parse(mark)
	if err != nil {
		return strconv.Quote(mark)
	}
	for _, known := range s.terms {
		if known.lease == lease && known.token == t.Possession() {
			if t.Operation == "" {
				return known.name
			}
			return known.name + "/" + t.Operation
		}
	}
	return "?"
}
