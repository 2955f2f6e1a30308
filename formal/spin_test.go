// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package formal_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
)

const (
	skipVariable = "FENCEDLEASE_FORMAL_SKIP"
	longVariable = "FENCEDLEASE_FORMAL_LONG"

	howToInstall = "on Debian and Ubuntu: apt-get install --no-install-recommends spin gcc libc6-dev. " +
		"Elsewhere build SPIN 6.5 (https://spinroot.com) and put spin and a C compiler named cc or gcc on the PATH. " +
		"On a machine of your own, " + skipVariable + "=1 skips these tests; with CI set it does not"
)

// tools finds spin and a C compiler. That they are missing is a failure: a check that did not run shows nothing.
func tools(t *testing.T) (spin, compiler string) {
	t.Helper()
	spin, err := exec.LookPath("spin")
	if err == nil {
		for _, name := range []string{"gcc", "cc", "clang"} {
			if compiler, err = exec.LookPath(name); err == nil {
				return spin, compiler
			}
		}
	}
	if os.Getenv(skipVariable) != "" && os.Getenv("CI") == "" {
		t.Skipf("the model is not checked: %v", err)
	}
	t.Fatalf("%v. The model needs SPIN and a C compiler; %s.", err, howToInstall)
	return "", ""
}

// result is what a verifier has said.
type result struct {
	violated string
	states   int64
	depth    int64
	seconds  string
	// unreached are the statements that were never executed.
	unreached []string
	// trail are the last steps of the counter-example.
	trail string
}

func TestModel(t *testing.T) {
	spin, compiler := tools(t)
	long := os.Getenv(longVariable) != ""
	table := &strings.Builder{}
	rows := tabwriter.NewWriter(table, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(rows, "model\tswitches\tresult\tstates\tdepth\tseconds")
	total := int64(0)
	check := func(kind string, variants []variant) {
		t.Run(kind, func(t *testing.T) {
			for _, v := range variants {
				if v.long && !long {
					continue
				}
				t.Run(v.says, func(t *testing.T) {
					got := verify(t, spin, compiler, v)
					outcome := "holds"
					if got.violated != "" {
						outcome = got.violated + " violated"
					}
					_, _ = fmt.Fprintf(rows, "%s\t%s\t%s\t%d\t%d\t%s\n", v.says, v.defines, outcome, got.states, got.depth, got.seconds)
					total += got.states
					switch {
					case got.violated != v.breaks && v.breaks == "":
						t.Errorf("%q is violated, all properties should hold. The end of the counter-example:\n%s", got.violated, got.trail)
					case got.violated != v.breaks:
						t.Errorf("violated is %q, want a counter-example to %q (%s)", got.violated, v.breaks, properties[v.breaks])
					case v.breaks == "" && len(got.unreached) > 0 && kind == "holds":
						t.Errorf("statements that are never executed show nothing:\n%s", strings.Join(got.unreached, "\n"))
					}
				})
			}
		})
	}
	check("holds", holding)
	check("without a guard", broken)
	check("guards that cover each other", redundant)
	if err := rows.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states in all\n%s", total, table)
}

// verify makes the verifier of one variant and runs it to its end.
func verify(t *testing.T, spin, compiler string, v variant) result {
	t.Helper()
	model, err := filepath.Abs("fencedlease.pml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run(t, dir, spin, append(append([]string{"-a"}, v.flags()...), model)...)
	// Whole states are stored: neither bitstate hashing nor hash compaction. Counter-examples are looked for breadth-first,
	// so that they are the shortest ones.
	compile := []string{"-w", "-DSAFETY", "-DNOFAIR", "-DVECTORSZ=1024", "-o", "verifier", "pan.c"}
	arguments := []string{"-w24"}
	if v.breaks == "" {
		compile = append(compile, "-O2")
		arguments = append(arguments, "-m1000000")
	} else {
		// These searches are short: most of their time is the compiler's.
		compile = append(compile, "-O0", "-DBFS")
	}
	run(t, dir, compiler, compile...)
	output := run(t, dir, filepath.Join(dir, "verifier"), arguments...)
	got, err := parse(output)
	if err != nil {
		t.Fatalf("%v. The verifier said:\n%s", err, output)
	}
	var unreached []string
	for _, statement := range got.unreached {
		known := false
		for _, u := range v.unreached {
			known = known || strings.Contains(statement, u)
		}
		if !known {
			unreached = append(unreached, statement)
		}
	}
	got.unreached = unreached
	if got.violated != "" {
		got.trail = trail(t, dir, spin, v, model)
	}
	return got
}

func run(t *testing.T, dir, program string, arguments ...string) string {
	t.Helper()
	output, err := execute(t.Context(), dir, program, arguments...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(arguments, " "), err, output)
	}
	return output
}

func execute(ctx context.Context, dir, program string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = dir
	output, err := command.CombinedOutput()
	return string(output), err
}

// trail replays a counter-example, which shows that it is one, and returns its last steps.
func trail(t *testing.T, dir, spin string, v variant, model string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.trail"))
	if err != nil || len(found) != 1 {
		t.Fatalf("no counter-example was written: %v, %v", found, err)
	}
	// A replayed violation makes spin end with an error; what counts is what it prints.
	output, _ := execute(t.Context(), dir, spin, append(append([]string{"-t", "-p", "-k", found[0]}, v.flags()...), model)...)
	if !strings.Contains(output, "assertion violated") {
		t.Fatalf("the counter-example does not replay:\n%s", output)
	}
	lines := strings.Split(output, "\n")
	return strings.Join(lines[max(0, len(lines)-200):], "\n")
}

var (
	summary  = regexp.MustCompile(`(?m)^State-vector \d+ byte, depth reached (\d+), errors: (\d+)$`)
	stored   = regexp.MustCompile(`(?m)^\s*(\d+) states, stored`)
	elapsed  = regexp.MustCompile(`(?m)^pan: elapsed time ([0-9.e+-]+) seconds`)
	violated = regexp.MustCompile(`assertion violated\s+!\(?(\w+)\)? \(at depth`)
	notRun   = regexp.MustCompile(`(?m)^\s+(\S+:\d+, state \d+, ".*")$`)
)

// parse reads the output of a verifier. A search that was not exhaustive, or whose end is not there, is an error.
func parse(output string) (result, error) {
	for _, truncated := range []string{
		"max search depth too small", "out of memory", "Bit statespace search", "hash compact", "resource limit", "aborting", "interrupted",
	} {
		if strings.Contains(output, truncated) {
			return result{}, fmt.Errorf("the search was not exhaustive: %q", truncated)
		}
	}
	if !strings.Contains(output, "Full statespace search for:") {
		return result{}, fmt.Errorf("not a full search")
	}
	if !regexp.MustCompile(`assertion violations\s*\+`).MatchString(output) || !regexp.MustCompile(`invalid end states\s*\+`).MatchString(output) {
		return result{}, fmt.Errorf("the search does not look for violated assertions and invalid end states")
	}
	var got result
	lines, counts := summary.FindAllStringSubmatch(output, -1), stored.FindAllStringSubmatch(output, -1)
	if len(lines) != 1 || len(counts) != 1 {
		return result{}, fmt.Errorf("no result, or several")
	}
	var err error
	if got.depth, err = strconv.ParseInt(lines[0][1], 10, 64); err != nil {
		return result{}, err
	}
	if got.states, err = strconv.ParseInt(counts[0][1], 10, 64); err != nil {
		return result{}, err
	}
	// Short searches print no time.
	if m := elapsed.FindStringSubmatch(output); m != nil {
		got.seconds = m[1]
	}
	found := violated.FindAllStringSubmatch(output, -1)
	switch {
	case lines[0][2] == "0" && len(found) == 0:
		if strings.Contains(output, "Search not completed") || strings.Contains(output, "pan:1:") {
			return result{}, fmt.Errorf("the search was not completed")
		}
	case lines[0][2] == "1" && len(found) == 1:
		got.violated = found[0][1]
	default:
		return result{}, fmt.Errorf("%s errors that are not one violated assertion", lines[0][2])
	}
	for _, m := range notRun.FindAllStringSubmatch(output, -1) {
		if !strings.HasSuffix(m[1], `"-end-"`) {
			got.unreached = append(got.unreached, m[1])
		}
	}
	return got, nil
}

func TestParseRefusesWhatIsNotAWholeSearch(t *testing.T) {
	t.Parallel()
	const whole = "Full statespace search for:\n\tassertion violations\t+\n\tinvalid end states\t+\n" +
		"State-vector 76 byte, depth reached 12, errors: 0\n   34 states, stored\n"
	if got, err := parse(whole); err != nil || got.states != 34 || got.depth != 12 || got.violated != "" {
		t.Fatalf("a whole search: %+v, %v", got, err)
	}
	const found = "pan:1: assertion violated  !(fell) (at depth 7)\n"
	failed := strings.Replace(whole, "errors: 0", "errors: 1", 1)
	if got, err := parse(found + failed); err != nil || got.violated != "fell" {
		t.Fatalf("a counter-example: %+v, %v", got, err)
	}
	for name, output := range map[string]string{
		"nothing at all":                    "",
		"the end is missing":                whole[:len(whole)/2],
		"no count of states":                strings.Replace(whole, "34 states, stored", "", 1),
		"two results":                       whole + whole,
		"the depth was not enough":          "error: max search depth too small\n" + whole,
		"memory was not enough":             whole + "pan: out of memory\n",
		"a bitstate search":                 strings.Replace(whole, "Full statespace", "Bit statespace", 1),
		"assertions were not looked for":    strings.Replace(whole, "violations\t+", "violations\t- (disabled)", 1),
		"end states were not looked for":    strings.Replace(whole, "states\t+", "states\t-", 1),
		"an error that is not an assertion": "pan:1: invalid end state (at depth 3)\n" + failed,
		"an error that is not counted":      found + whole,
		"a search that was not completed":   "Warning: Search not completed\n" + whole,
	} {
		if got, err := parse(output); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
}
