// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const tag = "registry.example/fencedlease/manager:v1.2.3"

func binary(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "manager")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// archive runs the program and returns the archive and what was told.
func archive(t *testing.T, args ...string) (name, told string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "image.tar")
	var out bytes.Buffer
	if err := run(append(args, "-tag", tag, "-output", name), &out); err != nil {
		t.Fatal(err)
	}
	return name, out.String()
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestTheSameBinaryGivesTheSameArchive(t *testing.T) {
	first, toldFirst := archive(t, "-binary", "linux/amd64="+binary(t, "a"), "-binary", "linux/arm64="+binary(t, "b"))
	path := binary(t, "a")
	if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(2, 0)); err != nil {
		t.Fatal(err)
	}
	second, toldSecond := archive(t, "-binary", "linux/amd64="+path, "-binary", "linux/arm64="+binary(t, "b"))
	if !bytes.Equal(read(t, first), read(t, second)) {
		t.Error("two archives of the same binaries differ")
	}
	if a, b := digestOf(toldFirst), digestOf(toldSecond); a != b || a == "" {
		t.Errorf("digests: %q and %q", a, b)
	}
	_, other := archive(t, "-binary", "linux/amd64="+binary(t, "changed"), "-binary", "linux/arm64="+binary(t, "b"))
	if digestOf(other) == digestOf(toldFirst) {
		t.Error("another binary gives the same digest")
	}
}

func digestOf(told string) string {
	_, digest, _ := strings.Cut(strings.TrimSpace(told), "@")
	return digest
}

func TestTheImageRunsAnotherProgram(t *testing.T) {
	name, _ := archive(t, "-binary", "linux/amd64="+binary(t, "a worker"), "-program", "/worker")
	image, err := tarball.ImageFromPath(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if config, err := image.ConfigFile(); err != nil || !slices.Equal(config.Config.Entrypoint, []string{"/worker"}) {
		t.Errorf("configuration: %+v, %v", config, err)
	}
}

func TestTheImageRunsTheManagerAsNonroot(t *testing.T) {
	name, _ := archive(t, "-binary", "linux/arm64="+binary(t, "the manager"))
	image, err := tarball.ImageFromPath(name, nil)
	if err != nil {
		t.Fatalf("as an archive for engines: %v", err)
	}
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != "arm64" || config.Config.User != "65532:65532" ||
		!slices.Equal(config.Config.Entrypoint, []string{"/manager"}) {
		t.Errorf("configuration: %+v", config)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]int64{}
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = header.Mode
		if header.Uid != 0 || header.Gid != 0 {
			t.Errorf("%s belongs to %d:%d", header.Name, header.Uid, header.Gid)
		}
	}
	if files["manager"] != 0o755 || files["etc/passwd"] != 0o644 || len(files) != 4 {
		t.Errorf("files: %v", files)
	}
}

func TestAnArchiveOfSeveralPlatformsIsAnIndex(t *testing.T) {
	name, told := archive(t, "-binary", "linux/amd64="+binary(t, "a"), "-binary", "linux/arm64="+binary(t, "b"))
	folder := unpack(t, name)
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations[containerdName] != tag || manifest.Manifests[0].Annotations[refName] != "v1.2.3" ||
		manifest.Manifests[0].Digest.String() != digestOf(told) {
		t.Fatalf("outer index: %+v, told %s", manifest, told)
	}
	inner, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	several, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range several.Manifests {
		found = append(found, m.Platform.String())
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(want, found) {
		t.Errorf("platforms: want %v, got %v", want, found)
	}
	var docker []struct{ RepoTags []string }
	if err := json.Unmarshal(read(t, filepath.Join(folder, "manifest.json")), &docker); err != nil || docker[0].RepoTags[0] != tag {
		t.Errorf("manifest.json: %+v, %v", docker, err)
	}
}

func unpack(t *testing.T, name string) string {
	t.Helper()
	folder := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(read(t, name))); ; {
		header, err := r.Next()
		if err == io.EOF {
			return folder
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(folder, filepath.FromSlash(header.Name))
		content, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o700)
		}
		if err == nil {
			err = os.WriteFile(to, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestBadArgumentsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing":            {nil, "-binary, -tag and -output are needed"},
		"no path":            {[]string{"-binary", "linux/amd64"}, "want <os>/<arch>=<path of the binary>"},
		"no platform":        {[]string{"-binary", "linux=x"}, `"linux" is no <os>/<arch>`},
		"a platform twice":   {[]string{"-binary", "linux/amd64=x", "-binary", "linux/amd64=y"}, "platform linux/amd64 is given twice"},
		"a missing binary":   {[]string{"-binary", "linux/amd64=" + filepath.Join(t.TempDir(), "none"), "-tag", tag, "-output", filepath.Join(t.TempDir(), "x")}, "read binary"},
		"an unknown folder":  {[]string{"-binary", "linux/amd64=" + binary(t, "a"), "-tag", tag, "-output", filepath.Join(t.TempDir(), "none", "x")}, "create archive"},
		"a trailing word":    {[]string{"-binary", "linux/amd64=" + binary(t, "a"), "-tag", tag, "-output", "x", "y"}, "and nothing else"},
		"no path of a file":  {[]string{"-binary", "linux/amd64=" + binary(t, "a"), "-tag", tag, "-output", "x", "-program", "bin/x"}, "in the root folder"},
		"an unknown setting": {[]string{"-platform", "x"}, "flag provided but not defined"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(c.args, io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, got %v", c.want, err)
			}
		})
	}
}
