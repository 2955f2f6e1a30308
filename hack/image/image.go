// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// user is the one that images without a shell usually run by, as the Dockerfile's base does.
	user   = "65532"
	source = "https://github.com/fencedlease/fencedlease"
)

// epoch is the time of everything in the image, so that it depends on the binary alone.
var epoch = time.Unix(0, 0).UTC()

// entry is a file or, without content, a directory of the image.
type entry struct {
	name    string
	mode    int64
	content []byte
}

// imageOf returns the image of one binary, which it runs as program.
func imageOf(b build, program string) (v1.Image, error) {
	binary, err := os.ReadFile(b.path)
	if err != nil {
		return nil, fmt.Errorf("read binary: %w", err)
	}
	content, err := layerOf([]entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, content: []byte("root:x:0:\nnonroot:x:" + user + ":\n")},
		{name: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:" + user + ":" + user + ":nonroot:/nonexistent:/sbin/nologin\n")},
		{name: program[1:], mode: 0o755, content: binary},
	})
	if err != nil {
		return nil, fmt.Errorf("pack binary: %w", err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("compress binary: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{CreatedBy: "hack/image", Created: v1.Time{Time: epoch}}})
	if err != nil {
		return nil, fmt.Errorf("add layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	config = config.DeepCopy()
	config.Created = v1.Time{Time: epoch}
	config.OS, config.Architecture, config.Variant = b.platform.OS, b.platform.Architecture, b.platform.Variant
	config.Config = v1.Config{
		User: user + ":" + user, Entrypoint: []string{program}, WorkingDir: "/",
		Env:    []string{"PATH=/"},
		Labels: map[string]string{"org.opencontainers.image.source": source, "org.opencontainers.image.licenses": "Apache-2.0"},
	}
	return mutate.ConfigFile(image, config)
}

// layerOf packs files, in their order.
func layerOf(entries []entry) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), ModTime: epoch, Format: tar.FormatPAX, Typeflag: tar.TypeReg}
		if e.content == nil {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}
