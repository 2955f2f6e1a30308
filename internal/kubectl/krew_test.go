// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"
)

// krewManifest is what krew reads of a plugin's manifest.
type krewManifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string `json:"version"`
		Homepage         string `json:"homepage"`
		ShortDescription string `json:"shortDescription"`
		Description      string `json:"description"`
		Caveats          string `json:"caveats"`
		Platforms        []struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			URI    string `json:"uri"`
			SHA256 string `json:"sha256"`
			Bin    string `json:"bin"`
		} `json:"platforms"`
	} `json:"spec"`
}

// TestKrewTemplate renders the template as a release does, with a function that takes the archive's place.
func TestKrewTemplate(t *testing.T) {
	text, err := os.ReadFile("../../.krew.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sum := strings.Repeat("0123456789abcdef", 4)
	release := struct{ TagName string }{"v1.2.3"}
	addURIAndSha := func(url, tag string) string {
		return "uri: " + strings.ReplaceAll(url, "{{ .TagName }}", tag) + "\n    sha256: " + sum
	}
	parsed, err := template.New("krew").Funcs(template.FuncMap{"addURIAndSha": addURIAndSha}).Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	var rendered bytes.Buffer
	if err := parsed.Execute(&rendered, release); err != nil {
		t.Fatal(err)
	}
	manifest := krewManifest{}
	if err := yaml.UnmarshalStrict(rendered.Bytes(), &manifest); err != nil {
		t.Fatalf("read the rendered manifest: %v\n%s", err, rendered.String())
	}
	if manifest.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || manifest.Kind != "Plugin" || manifest.Metadata.Name != "fencedlease" {
		t.Errorf("kind and name: got %s %s %s", manifest.APIVersion, manifest.Kind, manifest.Metadata.Name)
	}
	spec := manifest.Spec
	if spec.Version != "v1.2.3" || spec.Homepage == "" || spec.Description == "" || !strings.Contains(spec.Caveats, "v1.2.3/docs/install.md") {
		t.Errorf("description: got %+v", spec)
	}
	if short := spec.ShortDescription; short == "" || len(short) > 50 || strings.HasSuffix(short, ".") {
		t.Errorf("shortDescription has to be a phrase of at most 50 characters, got %q", short)
	}
	seen := map[string]bool{}
	for _, p := range spec.Platforms {
		system, arch := p.Selector.MatchLabels["os"], p.Selector.MatchLabels["arch"]
		seen[system+"/"+arch] = true
		bin := "kubectl-fencedlease"
		if system == "windows" {
			bin += ".exe"
		}
		if p.Bin != bin || p.SHA256 != sum || !strings.Contains(p.URI, "/v1.2.3/kubectl-fencedlease_"+system+"_"+arch+".") {
			t.Errorf("%s/%s: got %+v", system, arch, p)
		}
	}
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			if !seen[system+"/"+arch] {
				t.Errorf("%s/%s is missing", system, arch)
			}
		}
	}
}
