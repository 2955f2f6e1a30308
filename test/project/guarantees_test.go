// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestGuaranteesNameTestsThatExist reads docs/guarantees.md: each package, test and spec that a claim is shown by must be
// there, and no claim may be without one.
func TestGuaranteesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	var (
		row     = regexp.MustCompile(`(?m)^\| [0-9]+ \|.*$`)
		pointer = regexp.MustCompile("`([a-z0-9/_]+)`: ([^;|]*)")
		name    = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`|\"([^\"]+)\"")
	)
	rows := row.FindAllString(string(read(t, "docs/guarantees.md")), -1)
	if len(rows) < 10 {
		t.Fatalf("found %d claims only", len(rows))
	}
	for _, claim := range rows {
		number := strings.SplitN(claim, "|", 3)[1]
		cells := strings.Split(claim, "|")
		shownBy := cells[len(cells)-2]
		pointers := pointer.FindAllStringSubmatch(shownBy, -1)
		if len(pointers) == 0 {
			t.Errorf("claim%s names no test", number)
		}
		for _, p := range pointers {
			code := testCode(t, filepath.Join(root, p[1]))
			names := name.FindAllStringSubmatch(p[2], -1)
			if len(names) == 0 {
				t.Errorf("claim%s: %s names no test of %s", number, p[0], p[1])
			}
			for _, n := range names {
				// A spec's name may be put together: it begins or ends with what is quoted.
				found := strings.Contains(code, "func "+n[1]+"(")
				if n[2] != "" {
					found = strings.Contains(code, `"`+n[2]) || strings.Contains(code, n[2]+`"`)
				}
				if !found {
					t.Errorf("claim%s: %s is in no test file of %s", number, n[0], p[1])
				}
			}
		}
	}
}

// TestDocsLinkToFilesThatExist follows the relative links of all documents.
func TestDocsLinkToFilesThatExist(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	// The generated reference has no links to files, and patterns that look like some.
	documents = slices.DeleteFunc(documents, func(d string) bool { return filepath.Base(d) == "api.md" })
	for _, document := range append(documents, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(document), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", document, m[1], err)
			}
		}
	}
}

func testCode(t *testing.T, folder string) string {
	t.Helper()
	var code strings.Builder
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	if err != nil {
		t.Errorf("read tests: %v", err)
	}
	return code.String()
}
