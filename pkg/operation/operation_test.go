// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencedlease/fencedlease/pkg/operation"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// grammar is the text form, written a second time. Which days a month has is not in it.
var grammar = regexp.MustCompile(`^[-A-Za-z0-9.:][-A-Za-z0-9_.:]{0,127}=[1-9][0-9]{0,17}(@[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?$`)

func Example() {
	const annotation = "import-18=48216@2026-05-04T10:11:12Z import-17=48215"
	record, found := operation.Find(annotation, "import-17")
	fmt.Println(record.Generation, found)
	_, found = operation.Find(annotation, "import-1")
	fmt.Println(found)
	// Output:
	// 48215 true
	// false
}

func records() *rapid.Generator[operation.Record] {
	return rapid.Custom(func(t *rapid.T) operation.Record {
		r := operation.Record{
			Operation: rapid.StringMatching(`[-A-Za-z0-9.:][-A-Za-z0-9_.:]{0,127}`).
				Filter(func(id string) bool { return id != token.OperationDelete }).Draw(t, "operation"),
			Generation: rapid.Int64Range(1, token.MaxGeneration).Draw(t, "generation"),
		}
		if rapid.Bool().Draw(t, "timed") {
			r.Time = time.Unix(rapid.Int64Range(-30_000_000_000, 253_402_300_799).Draw(t, "time"), 0).UTC()
		}
		return r
	})
}

func TestPropertyRecordsSurviveTheirText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(records(), 0, operation.MaxRecords).Draw(t, "records")
		text := operation.Format(want)
		if len(text) > operation.MaxLength {
			t.Fatalf("%d bytes", len(text))
		}
		got, err := operation.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(got)+len(want) > 0 {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}
		}
		for i, w := range want {
			found, ok := operation.Find(text, w.Operation)
			if !ok || found.Operation != w.Operation {
				t.Fatalf("record %d of %q is not found", i, text)
			}
		}
	})
}

func TestPropertyAddKeepsTheNewest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kept := rapid.SliceOfN(records(), 0, 10).Draw(t, "records")
		newest := records().Draw(t, "newest")
		limit := rapid.IntRange(0, 12).Draw(t, "limit")
		got := operation.Add(kept, newest, limit)
		want := append([]operation.Record{newest}, kept...)
		if limit == 0 {
			want = kept
		} else if len(want) > limit {
			want = want[:limit]
		}
		if operation.Format(got) != operation.Format(want) {
			t.Fatalf("want %v, got %v", want, got)
		}
	})
}

func TestWhatIsNoRecordIsRefusedAndPassedOver(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":                           "",
		"no generation":                     "import-17",
		"an empty generation":               "import-17=",
		"an empty operation":                "=34",
		"a leading zero":                    "import-17=034",
		"a term":                            "import-17=34.k3v9x2ab",
		"an operation that is not recorded": "_17=34",
		"the delete intent":                 "delete=34",
		"an empty time":                     "import-17=34@",
		"a fraction of a second":            "import-17=34@2026-05-04T10:11:12.5Z",
		"another zone":                      "import-17=34@2026-05-04T10:11:12+02:00",
		"a day that no month has":           "import-17=34@2026-02-30T10:11:12Z",
		"the zero time":                     "import-17=34@0001-01-01T00:00:00Z",
		"too long an operation":             strings.Repeat("a", 129) + "=34",
		"two separators":                    "import=17=34",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := operation.ParseRecord(text); !errors.Is(err, operation.ErrMalformed) {
				t.Errorf("ParseRecord(%q) = %v, %v", text, got, err)
			}
			annotation := text + " import-16=33"
			if _, err := operation.Parse(annotation); !errors.Is(err, operation.ErrMalformed) {
				t.Errorf("Parse(%q): %v", annotation, err)
			}
			if got, found := operation.Find(annotation, "import-16"); !found || got.Generation != 33 {
				t.Errorf("the record behind %q is not found", text)
			}
		})
	}
	if _, err := operation.Parse(strings.TrimSpace(strings.Repeat("a=1 ", operation.MaxRecords+1))); !errors.Is(err, operation.ErrMalformed) {
		t.Errorf("too many records: %v", err)
	}
}

// The policies write no such time, but a writer of before the guard may have. See package controller, whose policies must agree:
// what they take for a record of the operation must be found, or it would be applied again and never recorded.
func TestATimeThatIsNoneHidesNoRecord(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"import-17=34@2026-02-31T10:11:12Z":             true,
		"import-17=34@9999-99-99T99:99:99Z import-18=1": true,
		"import-17=34@0001-01-01T00:00:00Z":             true,
		"import-17=34@2026-02-31T10:11:12":              false,
		"import-17=34@2026-02-31T10:11:12Zx":            false,
		"import-17=34@2026-02-31 import-17=33":          true,
		"import-17=34@":                                 false,
		"import-17=034@2026-02-31T10:11:12Z":            false,
	} {
		got, found := operation.Find(text, "import-17")
		if found != want || found && (got.Operation != "import-17" || got.Generation < 33 || !got.Time.IsZero()) {
			t.Errorf("Find(%q) = %v, %v", text, got, found)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	for _, seed := range []string{"", "a=1", "a=01", "a=1@", "import-17=34@2026-05-04T10:11:12Z", "_a=1", "delete=1", "a=1 b=2", "a=1@2026-13-04T10:11:12Z", "\xff=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := operation.ParseRecord(text)
		if err != nil {
			if !errors.Is(err, operation.ErrMalformed) || got != (operation.Record{}) || len(err.Error()) > 1000 {
				t.Fatalf("ParseRecord(%q) = %+v, %v", text, got, err)
			}
			return
		}
		if got.String() != text || !grammar.MatchString(text) {
			t.Fatalf("ParseRecord(%q) writes %q", text, got)
		}
		if found, ok := operation.Find("b=2 "+text, got.Operation); !ok || got.Operation != "b" && found != got {
			t.Fatalf("%q is not found", text)
		}
	})
}
