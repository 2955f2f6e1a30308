// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The decision is pure because it has nothing to be impure with. What is imported directly is a closed list; context,
// log, net/http, os, sync and time are in none of it. (apimachinery's types bring some of these along, which is why the
// list of all dependencies is checked for clients only.)
func TestImportsNothingImpure(t *testing.T) {
	t.Parallel()
	want := []string{
		"fmt", "github.com/fencedlease/fencedlease/api/v1alpha1", "github.com/fencedlease/fencedlease/pkg/operation", "github.com/fencedlease/fencedlease/pkg/token",
		"k8s.io/apimachinery/pkg/apis/meta/v1", "k8s.io/apimachinery/pkg/runtime/schema", "k8s.io/utils/ptr", "maps", "reflect", "slices", "strings", "unicode/utf8",
	}
	got := []string{}
	for _, file := range productFiles(t) {
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, path)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("imports (-want +got):\n%s", diff)
	}
}

func TestStartsNothingAndPanicsNowhere(t *testing.T) {
	t.Parallel()
	for name, file := range productFiles(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SendStmt, *ast.SelectStmt, *ast.ChanType:
				t.Errorf("%s: a goroutine or a channel", name)
			case *ast.CallExpr:
				if called, ok := n.Fun.(*ast.Ident); ok && (called.Name == "panic" || called.Name == "print" || called.Name == "println") {
					t.Errorf("%s: calls %s", name, called.Name)
				}
			}
			return true
		})
		for _, d := range file.Decls {
			if declaration, ok := d.(*ast.GenDecl); ok && declaration.Tok == token.VAR {
				t.Errorf("%s: a variable of the package", name)
			}
		}
	}
}

func TestDependsOnNoClient(t *testing.T) {
	t.Parallel()
	const self = "github.com/fencedlease/fencedlease/internal/fence"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", self).Output()
	if err != nil {
		t.Fatalf("list dependencies: %v", err)
	}
	dependencies := strings.Fields(string(out))
	if !slices.Contains(dependencies, self) {
		t.Fatalf("the list of dependencies does not hold the package itself:\n%s", out)
	}
	for _, dependency := range dependencies {
		for _, prefix := range []string{
			"k8s.io/client-go", "k8s.io/api/", "k8s.io/apiserver", "k8s.io/utils/clock", "sigs.k8s.io/controller-runtime",
			"github.com/prometheus", "go.uber.org",
		} {
			if strings.HasPrefix(dependency, prefix) {
				t.Errorf("depends on %s", dependency)
			}
		}
		if strings.HasPrefix(dependency, "github.com/fencedlease/fencedlease/") && !slices.Contains([]string{
			self, "github.com/fencedlease/fencedlease/api/v1alpha1", "github.com/fencedlease/fencedlease/pkg/operation", "github.com/fencedlease/fencedlease/pkg/token",
		}, dependency) {
			t.Errorf("depends on %s", dependency)
		}
	}
}

func productFiles(t *testing.T) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = file
	}
	if len(files) == 0 {
		t.Fatal("no files of the package")
	}
	return files
}
