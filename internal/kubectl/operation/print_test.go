// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"strings"
	"testing"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/clitest"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

func TestOutcomesArePrinted(t *testing.T) {
	for name, test := range map[string]struct {
		records string
		code    int
	}{
		"applied":                 {"import-18=35 import-17=34@2026-05-04T10:11:12Z", cli.ExitOK},
		"applied, time not known": {"import-17=34", cli.ExitOK},
		"not recorded":            {"import-19=36@2026-05-04T10:11:12Z import-18=35@2026-05-04T10:11:12Z", cli.ExitNotRecorded},
		"no records":              {"", cli.ExitError},
		"broken records":          {"import-18", cli.ExitError},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{"operations.fencedlease.io/report-writer": test.records}
			if test.records == "" {
				annotations = nil
			}
			lease, err := leaseOf("reports.example.com/daily", annotations, "")
			if err != nil {
				t.Fatal(err)
			}
			a := answer{
				Namespace: "reports", Object: "reports.example.com/daily", Operation: "import-17", Lease: lease,
				outcome: fenced.OutcomeOf(annotations, lease, "import-17"),
			}
			for _, output := range []string{"", outputJSON} {
				var out strings.Builder
				if err := a.print(&out, output); err != nil {
					t.Fatal(err)
				}
				clitest.Golden(t, strings.TrimSuffix(name+", "+output, ", "), out.String())
			}
			if code := cli.ExitCode(a.exit()); code != test.code {
				t.Errorf("the exit code is %d, want %d", code, test.code)
			}
		})
	}
}

func TestTheLeaseIsTheOnlyOneWithRecordsOrIsAskedFor(t *testing.T) {
	two := map[string]string{"operations.fencedlease.io/b": "x=1", "operations.fencedlease.io/a": "x=1"}
	if _, err := leaseOf("report/daily", two, ""); err == nil || !strings.Contains(err.Error(), "(a, b): say of which one") {
		t.Errorf("of two leases: %v", err)
	}
	if lease, err := leaseOf("report/daily", two, "b"); err != nil || lease != "b" {
		t.Errorf("asked for b: %q, %v", lease, err)
	}
}
