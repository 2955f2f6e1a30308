// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protocol is what the demo and its workers say to each other, a line of JSON each: the demo on a worker's
// standard input, the worker on its standard output.
package protocol

// Kinds of election.
const (
	// ElectionLease elects with client-go's own lock on a Lease, without fencing.
	ElectionLease = "lease"
	// ElectionFenced elects with pkg/resourcelock on a FencedLease.
	ElectionFenced = "fencedlease"
)

// EventName says what a worker reports.
type EventName string

const (
	// Leading: the elector has begun to lead; Generation and Token are set.
	Leading EventName = "leading"
	// Computed: the worker has its result, Value, has seen that it leads, and waits to be told to write it.
	Computed EventName = "computed"
	// Accepted: the API server has stored the write to Report.
	Accepted EventName = "accepted"
	// Refused: the API server has refused the write to Report; Code, Reason and Message are its answer.
	Refused EventName = "refused"
	// Failed: the write to Report had no answer of an API server; Message says why.
	Failed EventName = "failed"
	// Lost: the elector has stopped leading, and nobody asked it to.
	Lost EventName = "lost"
)

// Event is what a worker reports.
type Event struct {
	Name EventName `json:"name"`
	// Generation is that of the worker's term, or leaseTransitions of a Lease.
	Generation int64  `json:"generation,omitempty"`
	Token      string `json:"token,omitempty"`
	Report     string `json:"report,omitempty"`
	Value      string `json:"value,omitempty"`
	Code       int32  `json:"code,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"message,omitempty"`
}

// Order tells a worker to write its result to a report.
type Order struct {
	Report string `json:"report"`
}
