// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package formal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The page names functions of the product in back quotes, by their folder: `folder.Function` or `folder.Type.method`.
var named = regexp.MustCompile("`((?:internal|pkg|api)/[a-z0-9/]+)\\.([A-Za-z.]+)`")

func TestEveryFunctionThatThePageNamesExists(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := named.FindAllStringSubmatch(string(page), -1)
	if len(found) < 20 {
		t.Fatalf("the page names %d functions", len(found))
	}
	known := map[string]map[string]bool{}
	for _, m := range found {
		folder, name := m[1], m[2]
		if known[folder] == nil {
			known[folder] = functions(t, filepath.Join("..", filepath.FromSlash(folder)))
		}
		if !known[folder][name] {
			t.Errorf("%s has no function %s", folder, name)
		}
	}
}

// functions returns the names of a package's functions, those of methods with their types.
func functions(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			function, is := declaration.(*ast.FuncDecl)
			if !is {
				continue
			}
			name := function.Name.Name
			if function.Recv != nil {
				receiver := function.Recv.List[0].Type
				if pointer, is := receiver.(*ast.StarExpr); is {
					receiver = pointer.X
				}
				if of, is := receiver.(*ast.Ident); is {
					name = of.Name + "." + name
				}
			}
			names[name] = true
		}
	}
	return names
}

// Every switch of a variant must mean something to the model, and every guard of the model must be in a variant.
func TestEverySwitchIsKnownToTheModel(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("fencedlease.pml")
	if err != nil {
		t.Fatal(err)
	}
	model := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#(?:ifdef|ifndef|if|elif) (.*)$`).FindAllStringSubmatch(string(text), -1) {
		for _, name := range regexp.MustCompile(`[A-Z][A-Z_]+`).FindAllString(m[1], -1) {
			model[name] = true
		}
	}
	used := map[string]bool{}
	for _, list := range [][]variant{holding, broken, redundant} {
		for _, v := range list {
			for _, flag := range v.flags() {
				name, _, _ := strings.Cut(strings.TrimPrefix(flag, "-D"), "=")
				used[name] = true
				if !model[name] {
					t.Errorf("%q: the model knows no switch %s", v.says, name)
				}
			}
			if _, known := properties[v.breaks]; v.breaks != "" && !known {
				t.Errorf("%q: no property %s", v.says, v.breaks)
			}
		}
	}
	for name := range model {
		// One refinement of the fast path has no effect where replicas are restarted with the store.
		if !used[name] && name != "FAST_PATH_IGNORES_TERM_OF_MARK" {
			t.Errorf("no variant uses the model's switch %s", name)
		}
	}
}
