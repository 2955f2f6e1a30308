// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package token_test

import (
	"errors"
	"testing"

	"github.com/fencedlease/fencedlease/pkg/token"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "0", "1", "34", "034", "34.", "34.k3v9x2ab", "34.k3v9x2ab/17", "34/delete", "34/", "-34", "34 ", "34\n",
		"999999999999999999", "1000000000000000000", "34.K3V9X2AB", "34.k3v9x2ab/a/b", "٣٤", "34.αβγδ", "\xff", "34/\x00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := token.Parse(text)
		if accepted := grammar.MatchString(text); accepted != (err == nil) {
			t.Fatalf("Parse(%q): %v, but the grammar accepts: %v", text, err, accepted)
		}
		if err != nil {
			if !errors.Is(err, token.ErrMalformed) || !got.IsZero() || len(err.Error()) > 1000 {
				t.Fatalf("Parse(%q) = %+v, %v", text, got, err)
			}
			return
		}
		if got.String() != text {
			t.Fatalf("Parse(%q) writes %q", text, got)
		}
		if !policyPattern.MatchString(text) {
			t.Fatalf("%q is accepted, and an expression in the API server cannot read it", text)
		}
		if got.Generation < 1 || got.Generation > token.MaxGeneration {
			t.Fatalf("Parse(%q) has generation %d", text, got.Generation)
		}
	})
}
