// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTestsAreSkippedByADeveloperOnly(t *testing.T) {
	for name, test := range map[string]struct {
		skip, ci string
		want     bool
	}{
		"nothing is said":              {want: false},
		"a developer wants to":         {skip: "1", want: true},
		"continuous integration never": {skip: "1", ci: "true", want: false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(SkipVariable, test.skip)
			t.Setenv("CI", test.ci)
			if got := Skipped(); got != test.want {
				t.Errorf("want %t, got %t", test.want, got)
			}
		})
	}
}

func TestAMissingServerIsSaid(t *testing.T) {
	t.Run("the folder that is named has none", func(t *testing.T) {
		t.Setenv(BinariesVariable, t.TempDir())
		if _, err := Start(t.Context()); err == nil || !strings.Contains(err.Error(), BinariesVariable) {
			t.Errorf("want an error that names %s, got %v", BinariesVariable, err)
		}
	})
	t.Run("the folder that is named has one", func(t *testing.T) {
		folder := t.TempDir()
		for _, name := range []string{"initdb", "postgres"} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv(BinariesVariable, folder)
		if got, err := binaries(); err != nil || got != folder {
			t.Errorf("want %s, got %s, %v", folder, got, err)
		}
	})
	if !strings.Contains(errNotInstalled.Error(), "apt-get install --no-install-recommends postgresql") {
		t.Errorf("the error does not say what to install: %v", errNotInstalled)
	}
}

func TestMessagesAreReadAsTheProtocolSays(t *testing.T) {
	for want, raw := range map[string]string{
		"select 1": "Q\x00\x00\x00\x0eSELECT 1 \x00",
		"select 2": "P\x00\x00\x00\x13name\x00 SELECT 2\x00\x00\x00",
		"":         "S\x00\x00\x00\x04",
	} {
		got, err := readMessage(strings.NewReader(raw), true)
		if err != nil {
			t.Errorf("%q: %v", raw, err)
			continue
		}
		if statement := statementOf(got); statement != want {
			t.Errorf("want %q, got %q", want, statement)
		}
	}
	for _, raw := range []string{"", "Q\x00\x00", "Q\x00\x00\x00\x03", "Q\x7f\xff\xff\xff", "Q\x00\x00\x00\x0eSEL"} {
		if _, err := readMessage(strings.NewReader(raw), true); err == nil {
			t.Errorf("%q was taken for a message", raw)
		}
	}
}

func TestStatementsAreRewritten(t *testing.T) {
	for raw, want := range map[string]string{
		"Q\x00\x00\x00\x0dSELECT 1\x00":                 "Q\x00\x00\x00\x0eSELECT 10\x00",
		"P\x00\x00\x00\x14name\x00SELECT 1\x00\x00\x00": "P\x00\x00\x00\x15name\x00SELECT 10\x00\x00\x00",
		"P\x00\x00\x00\x10\x00SELECT 1\x00\x00\x00":     "P\x00\x00\x00\x11\x00SELECT 10\x00\x00\x00",
		"S\x00\x00\x00\x04":                             "S\x00\x00\x00\x04",
		"B\x00\x00\x00\x0dSELECT 1\x00":                 "B\x00\x00\x00\x0dSELECT 1\x00",
		"P\x00\x00\x00\x09\x00\x00\x00\x00\x00":         "P\x00\x00\x00\x09\x00\x00\x00\x00\x00",
	} {
		p := &Proxy{}
		if got := string(p.rewritten([]byte(raw))); got != raw {
			t.Errorf("nothing is to be rewritten: want %q, got %q", raw, got)
		}
		p.Rewrite(func(statement string) string { return statement + "0" })
		if got := string(p.rewritten([]byte(raw))); got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	}
}
