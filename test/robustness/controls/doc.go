// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controls runs the table of pauses against what people use where there is no FencedLease: client-go's election
// alone, and a webhook that compares an annotation with a cached lease. A table that they pass would show nothing.
package controls
