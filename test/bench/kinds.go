// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// kind is a kind of admission that writes are measured under.
type kind string

const (
	plain   kind = "no admission"
	policy  kind = "mark policy only"
	noop    kind = "no-op webhook"
	fenced  kind = "FencedLease, token in an annotation"
	request kind = "FencedLease, token with the request"
	sealed  kind = "FencedLease, sealed term"
)

// kinds returns all of them, in the order of the table.
func kinds() []kind { return []kind{plain, policy, noop, fenced, request, sealed} }

// writerCounts returns how many writers write at the same time.
func writerCounts() []int { return []int{1, 16, 64} }

// maxWriters is the highest of writerCounts.
const maxWriters = 64

// isFenced reports whether the manager reviews the writes.
func (k kind) isFenced() bool { return k == fenced || k == request || k == sealed }

// namespace returns where the objects are whose writes are admitted that way.
func (k kind) namespace() string {
	switch k {
	case policy:
		return "bench-policy"
	case noop:
		return "bench-noop"
	case fenced, request:
		return "bench-fenced"
	case sealed:
		return "bench-sealed"
	case plain:
	}
	return "bench-plain"
}

// prefix begins the names of the objects.
func (k kind) prefix() string {
	if k == request {
		return "request-"
	}
	return "report-"
}
