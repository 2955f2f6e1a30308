// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package helmtest tests dist/chart with Helm's own linter and engine, and compares what it installs with dist/install.yaml. It is a
// module of its own, so that nothing of Helm gets into that of the product.
package helmtest
