// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// platforms is a flag that may be given several times: <os>/<arch>=<path of the binary>.
type platforms []build

// build is the binary of one platform.
type build struct {
	platform v1.Platform
	path     string
}

func (p *platforms) String() string { return fmt.Sprintf("%d binaries", len(*p)) }

func (p *platforms) Set(text string) error {
	name, path, found := strings.Cut(text, "=")
	if !found || path == "" {
		return errors.New("want <os>/<arch>=<path of the binary>")
	}
	platform, err := v1.ParsePlatform(name)
	if err != nil || platform.OS == "" || platform.Architecture == "" {
		return fmt.Errorf("%q is no <os>/<arch>", name)
	}
	for _, b := range *p {
		if b.platform.Equals(*platform) {
			return fmt.Errorf("platform %s is given twice", name)
		}
	}
	*p = append(*p, build{platform: *platform, path: path})
	return nil
}

// run writes the archive and tells the digest.
func run(args []string, out io.Writer) error {
	var (
		binaries              platforms
		program, tag, archive string
	)
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.Var(&binaries, "binary", "`<os>/<arch>=<path>` of a static binary. May be given several times.")
	// As config/manager and the Dockerfile have it.
	flags.StringVar(&program, "program", "/manager", "Path of the binary in the image, which the image runs.")
	flags.StringVar(&tag, "tag", "", "Name and tag of the image.")
	flags.StringVar(&archive, "output", "", "Path of the archive.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if len(binaries) == 0 || tag == "" || archive == "" || flags.NArg() > 0 {
		return errors.New("-binary, -tag and -output are needed, and nothing else")
	}
	if !path.IsAbs(program) || path.Clean(program) != program || path.Dir(program) != "/" {
		return fmt.Errorf("-program %s: want the path of a file in the root folder", program)
	}
	digest, err := write(binaries, program, tag, archive)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %s@%s\n", archive, tag, digest)
	return err
}
