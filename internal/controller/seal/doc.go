// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package seal stamps the objects that a FencedLease guards with the generation of a new term, so that every write that is
// still under way under an older one is judged anew and refused. It stamps and watches; the controller decides when, and
// writes what has become of it.
package seal
