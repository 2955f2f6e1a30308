// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package possession is how a FencedLease is possessed on the wire: the requests that acquire, renew and release a term,
// what of a lease counts as a sign of life of its holder, and the errors that say how a term ended.
//
// It keeps no state and decides nothing about time: electors do, in pkg/resourcelock, pkg/leader and the kubectl plugin.
// All writes are merge patches of the status that name generation, term and holder, so that the rules of the FencedLease
// refuse a late one whatever its resourceVersion is.
package possession
