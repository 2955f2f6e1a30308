// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package project keeps the descriptions of the repository true: PROJECT, the Makefile's target names, and what is
// generated.
package project

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// project is the PROJECT file of kubebuilder, version 3.
type project struct {
	Version     string     `json:"version"`
	Layout      []string   `json:"layout"`
	Domain      string     `json:"domain"`
	ProjectName string     `json:"projectName"`
	Repo        string     `json:"repo"`
	Resources   []resource `json:"resources"`
}

type resource struct {
	API *struct {
		CRDVersion string `json:"crdVersion"`
		Namespaced bool   `json:"namespaced"`
		SSA        bool   `json:"ssa"`
	} `json:"api"`
	Controller bool   `json:"controller"`
	Domain     string `json:"domain"`
	Group      string `json:"group"`
	Kind       string `json:"kind"`
	Path       string `json:"path"`
	Version    string `json:"version"`
	Webhooks   *struct {
		Validation     bool   `json:"validation"`
		Defaulting     bool   `json:"defaulting"`
		WebhookVersion string `json:"webhookVersion"`
	} `json:"webhooks"`
}

func (r resource) group() string { return r.Group + "." + r.Domain }

func TestProjectDescribesTheRepository(t *testing.T) {
	var p project
	if err := yaml.UnmarshalStrict(read(t, "PROJECT"), &p); err != nil {
		t.Fatalf("read PROJECT: %v", err)
	}
	if diff := cmp.Diff([]string{"3", "go.kubebuilder.io/v4"}, append([]string{p.Version}, p.Layout...)); diff != "" {
		t.Errorf("version and layout (-want +got):\n%s", diff)
	}
	module := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(read(t, "go.mod"))
	if module == nil || string(module[1]) != p.Repo {
		t.Errorf("repo: want the module of go.mod, %s, got %s", module, p.Repo)
	}

	var listed []string
	for _, r := range p.Resources {
		crd := crdOf(t, r)
		listed = append(listed, crd.Name)
		if diff := cmp.Diff(r.API.Namespaced, crd.Spec.Scope == apiextensionsv1.NamespaceScoped); diff != "" {
			t.Errorf("%s: namespaced (-PROJECT +CRD):\n%s", r.Kind, diff)
		}
		dir := strings.TrimPrefix(r.Path, p.Repo+"/")
		if !contains(t, dir, "type "+r.Kind+" struct {") {
			t.Errorf("%s: no type of that name in %s", r.Kind, dir)
		}
		if applies := "pkg/client/applyconfiguration/" + dir; r.API.SSA && !contains(t, applies, "type "+r.Kind+"ApplyConfiguration struct {") {
			t.Errorf("%s: no apply configuration in %s", r.Kind, applies)
		}
		if r.Controller && !contains(t, "internal/controller", r.Kind) {
			t.Errorf("%s: no controller in internal/controller", r.Kind)
		}
		if r.Webhooks != nil && r.Webhooks.Validation {
			path := "/validate-" + strings.ReplaceAll(r.group(), ".", "-") + "-" + r.Version + "-" + strings.ToLower(r.Kind)
			if !bytes.Contains(read(t, "config/webhook/manifests.yaml"), []byte("path: "+path+"\n")) {
				t.Errorf("%s: config/webhook/manifests.yaml has no webhook with path %s", r.Kind, path)
			}
		}
	}

	var generated []string
	for _, file := range glob(t, "config/crd/bases/*.yaml") {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(read(t, file), &crd); err != nil {
			t.Fatalf("read %s: %v", file, err)
		}
		generated = append(generated, crd.Name)
	}
	if diff := cmp.Diff(generated, listed); diff != "" {
		t.Errorf("resources (-CRDs +PROJECT):\n%s", diff)
	}
}

// crdOf returns the generated CRD of a resource, and checks that it has the resource's version.
func crdOf(t *testing.T, r resource) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	for _, file := range glob(t, "config/crd/bases/"+r.group()+"_*.yaml") {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(read(t, file), &crd); err != nil {
			t.Fatalf("read %s: %v", file, err)
		}
		if crd.Spec.Names.Kind != r.Kind {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if v.Name == r.Version && v.Served {
				return &crd
			}
		}
		t.Fatalf("%s: the CRD does not serve %s", r.Kind, r.Version)
	}
	t.Fatalf("%s: no CRD in config/crd/bases", r.Kind)
	return nil
}

// TestMakefileHasTheTargetsOfTheScaffold names what users of kubebuilder type without looking, and what our own documents
// name.
func TestMakefileHasTheTargetsOfTheScaffold(t *testing.T) {
	want := strings.Fields(`all help manifests generate fmt vet test lint lint-fix lint-config build run docker-build docker-push
		docker-buildx build-installer install uninstall deploy undeploy
		verify lint-api test-unit test-integration demo bench fuzz api-docs envtest-binaries deflake`)
	makefile := string(read(t, "Makefile"))
	for _, target := range want {
		if !regexp.MustCompile(`(?m)^\.PHONY: ` + target + `\n` + target + `:.* ## \S`).MatchString(makefile) {
			t.Errorf("Makefile: no documented target %s", target)
		}
	}
	for _, doc := range append(glob(t, "*.md"), glob(t, "docs/*.md")...) {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z0-9-]*)").FindAllSubmatch(read(t, doc), -1) {
			if !strings.Contains(makefile, "\n.PHONY: "+string(m[1])+"\n") {
				t.Errorf("%s names make %s, which does not exist", doc, m[1])
			}
		}
	}
}

// TestRulesKeepTheirQuotes guards against gofmt, which turns a pair of single quotes in a doc comment, and so in a marker,
// into a typographic quote.
func TestRulesKeepTheirQuotes(t *testing.T) {
	for _, file := range append(glob(t, "config/crd/bases/*.yaml"), glob(t, "api/*/*.go")...) {
		if i := bytes.IndexAny(read(t, file), "“”‘’"); i >= 0 {
			t.Errorf("%s: typographic quote at byte %d: write empty strings in rules with double quotes inside of back quotes", file, i)
		}
	}
}

// TestEveryGoFileNamesItsLicence covers what the linters do not see: files of other build tags.
func TestEveryGoFileNamesItsLicence(t *testing.T) {
	header := read(t, "hack/boilerplate.go.txt")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "artifacts") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		// Generators put their build tag first.
		if i := bytes.Index(b, bytes.TrimSpace(header)); i < 0 || i > 200 {
			t.Errorf("%s does not begin with hack/boilerplate.go.txt", path)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("walk the repository: %v", err)
	}
}

func TestImageIsBuiltWithTheModulesGoVersion(t *testing.T) {
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(read(t, "go.mod"))
	image := regexp.MustCompile(`(?m)^ARG GO_VERSION=(\S+)$`).FindSubmatch(read(t, "Dockerfile"))
	if version == nil || image == nil || !bytes.Equal(version[1], image[1]) {
		t.Errorf("Go version: go.mod says %s, Dockerfile %s", version, image)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return b
}

// glob returns the matching paths, relative to the root.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		t.Fatalf("find %s: %v", pattern, err)
	}
	for i := range found {
		found[i] = strings.TrimPrefix(filepath.ToSlash(found[i]), root+"/")
	}
	return found
}

// contains says whether a Go file of a folder contains a text.
func contains(t *testing.T, dir, text string) bool {
	t.Helper()
	for _, file := range glob(t, dir+"/*.go") {
		if bytes.Contains(read(t, file), []byte(text)) {
			return true
		}
	}
	return false
}
