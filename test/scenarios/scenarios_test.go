// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/test/scenarios"
)

var update = flag.Bool("update", false, "write into the scripts what came of their commands")

// fewest is the number of stories that there must be, so that none is lost unnoticed.
const fewest = 12

// scripts returns the stories by their names.
func scripts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(file, ".txt")] = string(text)
	}
	if len(all) < fewest {
		t.Fatalf("%d stories, want at least %d", len(all), fewest)
	}
	return all
}

func TestStoriesInTheCore(t *testing.T) {
	for name, script := range scripts(t) {
		t.Run(name, func(t *testing.T) {
			got, err := scenarios.Play(t.Context(), script, scenarios.NewCore())
			if err != nil {
				t.Fatalf("%v\n%s", err, got)
			}
			if *update {
				if err := os.WriteFile(name+".txt", []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(script, got); diff != "" {
				t.Errorf("(-script +got):\n%s", diff)
			}
		})
	}
}

// A script that says something else than what happens must be noticed, and so must one that makes no sense.
func TestWrongScriptsAreRefused(t *testing.T) {
	for script, want := range map[string]string{
		"lease writer\nacquire A\nfly A report":                                `unknown command "fly"`,
		"lease writer\nacquire A\nwrite A report":                              "want 3 words, got 2",
		"lease writer\nacquire A\nwrite A report v color=red":                  "unknown setting color",
		"lease writer\nwrite A report v":                                       "A has never held writer",
		"lease writer\nacquire A\nwrite A report v as=T2":                      "there is no term T2",
		"lease writer\nacquire A\ncreate A r v\npause p write A r w":           "these writes are never resumed: p",
		"lease writer\nacquire A\nresume p":                                    "no write p waits",
		"lease writer\nacquire A\ncreate A r v\npause p delete A r by=nothing": "does not come to its commit: refused: MissingToken",
	} {
		got, err := scenarios.Play(t.Context(), script, scenarios.NewCore())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want %q, got %v\n%s", script, want, err, got)
		}
	}
}
