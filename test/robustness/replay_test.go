// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"flag"
	"testing"

	"github.com/fencedlease/fencedlease/test/robustness/report"
	"github.com/fencedlease/fencedlease/test/robustness/validate"
)

var historyDir = flag.String("history", "", "folder of a saved history that TestReplay checks again")

// TestReplay checks a saved history again, without any process:
//
//	go test ./test/robustness -run TestReplay -v -args -history <folder>
func TestReplay(t *testing.T) {
	if *historyDir == "" {
		t.Skip("no -history is given")
	}
	judge(t, *historyDir, validate.Minimum{})
}

// judge fails the test if the history violates anything.
func judge(t *testing.T, dir string, least validate.Minimum) *report.Judgement {
	t.Helper()
	j, err := report.Judge(dir, least)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s", dir, j.Summary)
	for _, violation := range j.Shown() {
		t.Error(violation)
	}
	return j
}
