// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version tells which build this is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker for releases: -X github.com/fencedlease/fencedlease/internal/version.version=v1.2.3.
var version string

// String returns the version: that of the release, else that of the module, else "devel".
func String() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Long returns the version with the toolchain and platform.
func Long() string {
	return fmt.Sprintf("%s (%s, %s/%s)", String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// UserAgent returns the user agent of a program of this product.
func UserAgent(program string) string { return program + "/" + String() }
