// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fencing answers the API server's reviews of writes to guarded objects: it decodes a review, finds the leases
// that guard the object, asks internal/fence for a verdict by each, and encodes the answer. It decides nothing itself
// and writes nothing.
//
// Two paths lead to a verdict. The validating one judges every guarded write but those to /status. The mutating one judges
// writes to /status, because only that phase sees the annotations of such a request; it patches nothing. Both run inside
// the API server's compare-and-swap loop.
//
// A third path decides nothing: in the mutating phase, a create or update that is made with a term credential, and without
// a token of its own, gets the mark of that term, so that the mark moves in the same commit.
//
// An update under a term that hands over by Seal, and that has been sealed, is judged without a read of its lease: by the
// watched copy, of any age, and by the mark of the stored object, which the commit is conditioned on and which the next
// term's seal moves first.
//
// Each path ends with the resourceVersion up to which the registration that made the API server call has seen the
// leases. A replica whose copy is older waits for it, so that it never judges by older guards than the caller's.
package fencing
