// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fence decides whether a write to a guarded object may pass. It is pure: values in, verdict out; no client, no
// clock, no logger and no goroutine, so that the webhook, the plugin and the tests all decide the same.
//
// The argument, in short. An update, patch, apply, status write or delete is admitted inside the API server's
// compare-and-swap loop: the old object that Decide sees is the one the commit is conditioned on, and its mark is the
// token of the last accepted write. A token below the mark is therefore refused exactly at the commit. A token at or
// above the mark is compared with the lease, as read by a linearizable read that began after the request arrived.
//
// A token arrives as a changed annotation, as an extra of the request, or by the credential that the request is made with,
// which the lease lists for a term.
//
// Decide may be called with a cached lease first. It then answers NeedsRead wherever a newer possession could make the
// answer an acceptance, and a refusal only where none can. A change of the lease's spec, or its deletion, that the cache
// has not seen yet may be refused for that long, and so may a credential of an ended term that the lease lists no more; it
// is never admitted for too long.
//
// One acceptance needs no read: that of an update under a term that hands over by Seal and has been sealed. The next term
// begins by moving every mark, and is not ready before; the commit is conditioned on the mark that is still there. See
// SealCovers.
package fence
