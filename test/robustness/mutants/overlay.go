// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Mutate returns the files of the product as the mutant has them, by their paths below root. It is an error if a
// replacement does not match exactly once.
func (m *Mutant) Mutate(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.Edits {
		text, begun := files[e.File]
		if !begun {
			data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.File)))
			if err != nil {
				return nil, fmt.Errorf("read file of the product: %w", err)
			}
			text = string(data)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return nil, fmt.Errorf("mutant %q: %d places of %s match, not one: keep the mutant true to the code:\n%s", m.Name, n, e.File, e.Old)
		}
		files[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	return files, nil
}

// Build builds a program of the module as the mutant has it; no mutant stands for the product itself.
func Build(ctx context.Context, root, dir, program string, m *Mutant) (path string, err error) {
	if dir, err = os.MkdirTemp(dir, "mutant-"); err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	// Without symbols it links faster.
	args := []string{"build", "-ldflags=-s -w", "-o", filepath.Join(dir, filepath.Base(program))}
	if m != nil {
		overlay, err := m.overlay(root, dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay="+overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+program)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return filepath.Join(dir, filepath.Base(program)), nil
}

// overlay writes the mutant's files and the description by which go build takes them for those of the product.
func (m *Mutant) overlay(root, dir string) (path string, err error) {
	files, err := m.Mutate(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range files {
		to := filepath.Join(dir, "file-"+strconv.Itoa(len(replace))+".go")
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("write file of the mutant: %w", err)
		}
		replace[filepath.Join(root, filepath.FromSlash(file))] = to
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("encode overlay: %w", err)
	}
	path = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	return path, nil
}
