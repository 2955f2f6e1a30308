// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The names by which runtimes find the tag of an image in an archive.
const (
	refName        = "org.opencontainers.image.ref.name"
	containerdName = "io.containerd.image.name"
)

// write writes the archive of an image, or of an index of several, and returns its digest.
func write(binaries []build, program, tag, archive string) (digest v1.Hash, err error) {
	folder, err := os.MkdirTemp("", "image-")
	if err != nil {
		return v1.Hash{}, fmt.Errorf("make folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	images := make([]v1.Image, len(binaries))
	for i, b := range binaries {
		if images[i], err = imageOf(b, program); err != nil {
			return v1.Hash{}, fmt.Errorf("make image of %s: %w", b.platform, err)
		}
	}
	to, err := layout.Write(folder, empty.Index)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("begin layout: %w", err)
	}
	names := layout.WithAnnotations(map[string]string{containerdName: tag, refName: tag[strings.LastIndexAny(tag, ":/")+1:]})
	if len(images) == 1 {
		err = to.AppendImage(images[0], names, layout.WithPlatform(binaries[0].platform))
		if err == nil {
			digest, err = images[0].Digest()
		}
	} else {
		index := indexOf(binaries, images)
		err = to.AppendIndex(index, names)
		if err == nil {
			digest, err = index.Digest()
		}
	}
	if err != nil {
		return v1.Hash{}, fmt.Errorf("write layout: %w", err)
	}
	if err := writeDockerManifest(to, images[0], tag); err != nil {
		return v1.Hash{}, fmt.Errorf("write manifest.json: %w", err)
	}
	return digest, pack(folder, archive)
}

func indexOf(binaries []build, images []v1.Image) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i, image := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &binaries[i].platform}})
	}
	return index
}

// writeDockerManifest adds what engines read that do not know the layout of OCI. They know one image only: the first.
func writeDockerManifest(to layout.Path, image v1.Image, tag string) error {
	manifest, err := image.Manifest()
	if err != nil {
		return err
	}
	blob := func(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }
	var layers []string
	for _, l := range manifest.Layers {
		layers = append(layers, blob(l.Digest))
	}
	data, err := json.Marshal([]map[string]any{{"Config": blob(manifest.Config.Digest), "RepoTags": []string{tag}, "Layers": layers}})
	if err != nil {
		return err
	}
	return to.WriteFile("manifest.json", data, 0o644)
}

// pack writes a folder as a tar archive that depends on names and contents alone. An archive is there whole or not at all.
func pack(folder, archive string) (err error) {
	var files []string
	err = filepath.WalkDir(folder, func(name string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list layout: %w", err)
	}
	slices.Sort(files)

	out, err := os.CreateTemp(filepath.Dir(archive), filepath.Base(archive)+".*")
	if err != nil {
		return fmt.Errorf("create archive: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(out.Name()))
		}
	}()
	w := tar.NewWriter(out)
	for _, name := range files {
		if err := packFile(w, folder, name); err != nil {
			return errors.Join(fmt.Errorf("pack %s: %w", name, err), out.Close())
		}
	}
	if err := errors.Join(w.Close(), out.Chmod(0o644), out.Close()); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return os.Rename(out.Name(), archive)
}

func packFile(w *tar.Writer, folder, name string) (err error) {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	relative, err := filepath.Rel(folder, name)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: filepath.ToSlash(relative), Mode: 0o644, Size: info.Size(), ModTime: epoch, Format: tar.FormatPAX, Typeflag: tar.TypeReg}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}
