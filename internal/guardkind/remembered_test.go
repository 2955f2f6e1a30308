// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package guardkind_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencedlease/fencedlease/internal/guardkind"
)

// scripted answers with one class and counts. During a call it runs meanwhile.
type scripted struct {
	class     guardkind.Class
	err       error
	calls     int
	meanwhile func()
}

func (s *scripted) Classify(context.Context, string, string) (guardkind.Kind, error) {
	s.calls++
	if s.meanwhile != nil {
		s.meanwhile()
	}
	return guardkind.Kind{Class: s.class}, s.err
}

func TestAnswersAreKeptUntilForgotten(t *testing.T) {
	next := &scripted{class: guardkind.Missing}
	r := guardkind.NewRemembered(next)
	expect := func(what string, class guardkind.Class, calls int) {
		t.Helper()
		kind, err := r.Classify(t.Context(), "example.com", "reports")
		if err != nil || kind.Class != class || next.calls != calls {
			t.Errorf("%s: %s, %v after %d calls, want %s after %d", what, kind.Class, err, next.calls, class, calls)
		}
	}
	expect("first", guardkind.Missing, 1)
	expect("remembered", guardkind.Missing, 1)
	next.class = guardkind.CRD
	r.Forget()
	expect("forgotten", guardkind.CRD, 2)
	expect("remembered again", guardkind.CRD, 2)
}

func TestAnAnswerFromBeforeForgetIsNotKept(t *testing.T) {
	next := &scripted{class: guardkind.Missing}
	r := guardkind.NewRemembered(next)
	next.meanwhile = r.Forget
	if _, err := r.Classify(t.Context(), "example.com", "reports"); err != nil {
		t.Fatal(err)
	}
	next.meanwhile, next.class = nil, guardkind.CRD
	if kind, err := r.Classify(t.Context(), "example.com", "reports"); err != nil || kind.Class != guardkind.CRD {
		t.Errorf("got %s, %v, want a new answer", kind.Class, err)
	}
}

func TestErrorsAreNotKept(t *testing.T) {
	next := &scripted{err: errors.New("no answer")}
	r := guardkind.NewRemembered(next)
	if _, err := r.Classify(t.Context(), "example.com", "reports"); !errors.Is(err, next.err) {
		t.Errorf("got %v", err)
	}
	next.err, next.class = nil, guardkind.CRD
	if kind, err := r.Classify(t.Context(), "example.com", "reports"); err != nil || kind.Class != guardkind.CRD {
		t.Errorf("got %s, %v", kind.Class, err)
	}
}
