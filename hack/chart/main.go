// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Chart writes the Helm chart from what kustomize builds, so that both install the same: each object becomes a template, in
// which what the values decide takes the place of what kustomize has there. hack/chart/helmtest compares the two.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	install := flag.String("install", "dist/install.yaml", "What config/default builds.")
	prometheus := flag.String("prometheus", "", "What config/prometheus builds.")
	certManager := flag.String("certmanager", "", "What config/certmanager builds.")
	output := flag.String("output", "dist/chart", "Folder of the chart.")
	flag.Parse()
	if err := run(*install, *prometheus, *certManager, *output); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(install, prometheus, certManager, output string) error {
	var built inputs
	for _, file := range []struct {
		path string
		to   *[]object
	}{{install, &built.install}, {prometheus, &built.prometheus}, {certManager, &built.certManager}} {
		text, err := os.ReadFile(file.path)
		if err != nil {
			return err
		}
		if *file.to, err = decode(text); err != nil {
			return fmt.Errorf("read %s: %w", file.path, err)
		}
	}
	files, err := chart(built)
	if err != nil {
		return err
	}
	// What is no longer generated must not stay.
	if err := os.RemoveAll(filepath.Join(output, "templates")); err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(output, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as everything in a work tree
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // as everything in a work tree
			return err
		}
	}
	return nil
}
