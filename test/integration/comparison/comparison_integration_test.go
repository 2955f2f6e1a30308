// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package comparison_test shows, on a real API server, which late writes of a leader that was paused each way of
// protecting objects stops: client-go's election alone, a gate in the client, resourceVersion, a policy written by hand,
// and FencedLease. docs/comparison.md holds the same table.
package comparison_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// outcome is what became of a late write.
type outcome string

const (
	lands   outcome = "lands"
	stopped outcome = "stopped"
)

// ways are the columns of the table, failures its rows.
var (
	ways = []*way{clientGo, gate, versions, policy, fencedLease}

	failures = []failure{
		{"update, after the successor has updated the object", updateAfter},
		{"update, before the successor's first write to the object", updateBefore},
		{"create", createNew},
		{"update that reads and tries again after a conflict", retryOnConflict},
		{"patch by a part of the program that does not know of the election", plainPatch},
		{"status, after the successor has updated the object", statusAfter},
		{"delete, after the successor has updated the object", deleteAfter},
	}

	want = map[string]map[*way]outcome{
		failures[0].name: {clientGo: lands, gate: lands, versions: stopped, policy: stopped, fencedLease: stopped},
		failures[1].name: {clientGo: lands, gate: lands, versions: lands, policy: lands, fencedLease: stopped},
		failures[2].name: {clientGo: lands, gate: lands, versions: lands, policy: lands, fencedLease: stopped},
		failures[3].name: {clientGo: lands, gate: stopped, versions: lands, policy: stopped, fencedLease: stopped},
		failures[4].name: {clientGo: lands, gate: lands, versions: lands, policy: lands, fencedLease: stopped},
		failures[5].name: {clientGo: lands, gate: lands, versions: stopped, policy: lands, fencedLease: stopped},
		failures[6].name: {clientGo: lands, gate: lands, versions: stopped, policy: lands, fencedLease: stopped},
	}
)

func TestLateWritesOfAPausedLeader(t *testing.T) {
	s := start(t)
	got := map[string]map[*way]outcome{}
	for _, f := range failures {
		got[f.name] = map[*way]outcome{}
	}
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			for name, o := range s.tell(t, w) {
				got[name][w] = o
			}
		})
	}
	if diff := cmp.Diff(tableOf(want), tableOf(got)); diff != "" {
		t.Errorf("late writes (-want +got):\n%s", diff)
	}
}

func TestTheDocumentHoldsTheTable(t *testing.T) {
	text, err := os.ReadFile("../../../docs/comparison.md")
	if err != nil {
		t.Fatal(err)
	}
	table := tableOf(want)
	if !strings.Contains(string(text), table) {
		t.Errorf("docs/comparison.md does not hold this table:\n%s", table)
	}
}

// tableOf writes outcomes as the document shows them.
func tableOf(outcomes map[string]map[*way]outcome) string {
	var text strings.Builder
	text.WriteString("| late write of the paused leader |")
	for _, w := range ways {
		fmt.Fprintf(&text, " %s |", w.name)
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(ways)) + "\n")
	for _, f := range failures {
		fmt.Fprintf(&text, "| %s |", f.name)
		for _, w := range ways {
			o := string(outcomes[f.name][w])
			if o == string(stopped) {
				o = "**" + o + "**"
			}
			fmt.Fprintf(&text, " %s |", o)
		}
		text.WriteString("\n")
	}
	return text.String()
}
