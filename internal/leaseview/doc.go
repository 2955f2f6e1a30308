// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leaseview is what a webhook replica knows of FencedLeases. It answers three questions, each from the source
// that makes the answer safe.
//
// # Who leads now?
//
// Fresh answers from a linearizable read: a GET without a resourceVersion, which the API server takes to etcd. A review
// may be accepted only on a read that was started after the review arrived, for then everything that had been committed
// before the review is in it. It need not be the review's own read: one read serves every review that had arrived when
// it started. So per lease at most one read runs; it is never joined; reviews that arrive while it runs share the next
// one, which starts when it ends. With n concurrent reviews of one lease the number of reads is bounded by the time
// divided by the duration of a read, not by n. A read that fails answers those who waited for it with its error and
// nobody with an older result.
//
// # Is this token stale already?
//
// Cached answers from the watched copy, which may be of any age. Generations only grow, so a token below a cached
// generation is below the real one as well: a cached lease may make a verdict stricter and must never make it looser.
//
// # Which leases guard this object?
//
// Guarding answers from an index over the watched copy. Guards are configuration: each registration of the webhook
// carries the resourceVersion of the guards it was built from, and WaitFor holds a review back until the copy has
// reached it, so that a replica never judges by older guards than the registration that called it.
//
// # The copy
//
// The copy is filled by a client-go reflector that writes straight into the store of this package, without a queue in
// between. Hence the store's resourceVersion is exact: it advances with each event, list and bookmark in the same step as
// the content, and waiters are told, none polls. The first list is a consistent read, never "any age".
//
// A store that was restored from a backup goes back in time while a watch does not: it silently waits for a revision that
// the store will reach only later. The view notices when a linearizable read, or a new list, shows less than the copy
// had: it calls OnBehind, since the generations in between were handed out and must never be again, and replaces the
// copy. When a watch ends, as all do when API servers are restarted with a restored store, the leases are listed again
// rather than watched from the version that the copy has: the store may have come as far again meanwhile, and a lease that
// the restore has brought back would never be told. A copy that lags behind what reads have shown, or that has heard nothing
// for too long, is replaced as well.
// Replacing means: the old copy is frozen, then a new one is listed, then it takes the old one's place in one step. The
// order matters. As the list is linearizable and starts after the old copy stopped changing, the new copy is never older
// than what callers have seen, unless the store went back. Ready reports an error from the moment the need is known until
// the new copy is in place.
package leaseview
