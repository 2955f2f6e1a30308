// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package token_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencedlease/fencedlease/pkg/token"
)

// grammar is the text form, written a second time: what Parse accepts must be exactly this language.
var grammar = regexp.MustCompile(`^[1-9][0-9]{0,17}([.][a-z0-9]{8})?(/[-A-Za-z0-9_.:]{1,128})?$`)

func generatedToken() *rapid.Generator[token.Token] {
	return rapid.Custom(func(t *rapid.T) token.Token {
		return token.Token{
			Generation: rapid.Int64Range(1, token.MaxGeneration).Draw(t, "generation"),
			Term:       rapid.StringMatching(`([a-z0-9]{8})?`).Draw(t, "term"),
			Operation:  rapid.StringMatching(`([-A-Za-z0-9_.:]{1,128})?`).Draw(t, "operation"),
		}
	})
}

func TestPropertyEveryTokenSurvivesItsText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := generatedToken().Draw(t, "token")
		built, err := token.New(want.Generation, want.Term)
		if err != nil {
			t.Fatal(err)
		}
		if built, err = built.WithOperation(want.Operation); err != nil {
			t.Fatal(err)
		}
		if built != want {
			t.Fatalf("built %+v, want %+v", built, want)
		}
		got, err := token.Parse(want.String())
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("Parse(%q) = %+v, want %+v", want, got, want)
		}
	})
}

// Small edits of well-formed texts reach the borders of the grammar much more often than random texts do.
func TestPropertyParseAcceptsExactlyTheGrammar(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(generatedToken().Draw(t, "token").String())
		for range rapid.IntRange(0, 3).Draw(t, "edits") {
			at := rapid.IntRange(0, len(text)).Draw(t, "at")
			with := rapid.SampledFrom([]string{"", "0", "9", ".", "/", "a", "Z", "-", ":", " ", "\n", "é", "\xff"}).Draw(t, "with")
			drop := min(rapid.IntRange(0, 2).Draw(t, "drop"), len(text)-at)
			text = append(append(append([]byte{}, text[:at]...), with...), text[at+drop:]...)
		}
		_, err := token.Parse(string(text))
		if want, got := grammar.Match(text), err == nil; want != got {
			t.Fatalf("Parse(%q) accepts: %v (%v), the grammar: %v", text, got, err, want)
		}
	})
}

func TestPropertyCompareIsAnOrderOfGenerations(t *testing.T) {
	t.Parallel()
	near := rapid.Custom(func(t *rapid.T) token.Token {
		drawn := generatedToken().Draw(t, "token")
		drawn.Generation = rapid.Int64Range(1, 4).Draw(t, "near generation")
		return drawn
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := near.Draw(t, "a"), near.Draw(t, "b"), near.Draw(t, "c")
		switch {
		case token.Compare(a, a) != 0:
			t.Fatalf("%s differs from itself", a)
		case token.Compare(a, b) != -token.Compare(b, a):
			t.Fatalf("%s and %s have no order", a, b)
		case token.Compare(a, b) <= 0 && token.Compare(b, c) <= 0 && token.Compare(a, c) > 0:
			t.Fatalf("%s, %s, %s are not transitive", a, b, c)
		case (token.Compare(a, b) == 0) != (a.Generation == b.Generation):
			t.Fatalf("%s and %s: equal by more or less than the generation", a, b)
		case token.Compare(a.Possession(), b) != token.Compare(a, b):
			t.Fatalf("the operation of %s plays a part", a)
		}
	})
}

func TestPropertyErrorsAreBoundedAndTyped(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat(rapid.String().Draw(t, "text"), rapid.IntRange(1, 1000).Draw(t, "times"))
		_, err := token.Parse(text)
		if err == nil {
			return
		}
		if !errors.Is(err, token.ErrMalformed) {
			t.Fatalf("%v does not wrap ErrMalformed", err)
		}
		if len(err.Error()) > 1000 {
			t.Fatalf("%d bytes of error for %d bytes of text", len(err.Error()), len(text))
		}
		if strings.ContainsAny(err.Error(), "\n\r\x00") {
			t.Fatalf("the error repeats control characters: %q", err)
		}
	})
}
