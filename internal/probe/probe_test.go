// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"strings"
	"testing"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/probe"
)

const hash = "0123456789abcdef"

func TestEveryNameIsParsedBack(t *testing.T) {
	for _, kind := range probe.Kinds() {
		name := probe.Name(kind, hash)
		gotKind, gotHash, ok := probe.Parse(name)
		if !ok || gotKind != kind || gotHash != hash {
			t.Errorf("Parse(%q) = %q, %q, %v", name, gotKind, gotHash, ok)
		}
		if len(name) > v1alpha1.MaxNameLength {
			t.Errorf("%q is longer than a FencedLease's name may be", name)
		}
	}
}

func TestOtherNamesAreNoProbes(t *testing.T) {
	for name, text := range map[string]string{
		"an ordinary name":     "report-writer",
		"another kind":         "fencedlease-probe-other-" + hash,
		"no hash":              "fencedlease-probe-guards",
		"an empty hash":        "fencedlease-probe-guards-",
		"a short hash":         "fencedlease-probe-guards-" + hash[1:],
		"something behind":     probe.Name(probe.Guards, hash) + "-x",
		"something before":     "x-" + probe.Name(probe.Guards, hash),
		"upper case":           strings.ToUpper(probe.Name(probe.Guards, hash)),
		"not hexadecimal":      "fencedlease-probe-guards-" + strings.Repeat("g", probe.HashLength),
		"the empty string":     "",
		"the beginning of one": "fencedlease-probe-",
	} {
		if kind, got, ok := probe.Parse(text); ok {
			t.Errorf("%s: Parse(%q) = %q, %q, want no probe", name, text, kind, got)
		}
	}
}
