// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutants changes the product by a line or two, and demands that each change is noticed from outside: by what an
// API server answers and stores. It tests the tests, and whether each line that the promise is said to rest on is needed.
//
// A mutant is a textual replacement in files of the product, which must match exactly once, so that mutants stay true to
// the code. The programs are built with it by go build -overlay; nothing of the tree is written.
package mutants
