// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fencedmanager makes a manager of controller-runtime a fenced one: New takes the place of controller-runtime's
// manager.New, and nothing else changes.
//
// The manager elects its leader on a FencedLease, by the lock of package resourcelock and with all of its own election
// options, LeaderElectionReleaseOnCancel among them. Its client presents the token of the term with every write: on
// objects, on their status and on children, by whichever reconciler. When the term has ended, writes are refused before
// they leave; a write that had left before is refused by the API server. A process has one term: after it, the manager
// ends, as a manager of controller-runtime does, and its client never presents a later term's token.
//
// A write whose context is one of fenced.WithOperation is applied once, and its repetition succeeds: the client then returns
// the object as the API server has it.
//
// Before the term begins the client presents nothing. What a manager writes on every replica, outside of guarded kinds,
// is as it was.
//
// A follower's cache is warm, and may be behind. Right after the acquisition, the first use of each kind of the cache waits
// until the cache shows at least what was stored at that time (see package barrier), so that the first reconcile does not
// act on what the last leader has changed since. This holds for watches of controllers and for reads of the client, and for
// all users of the cache, also of webhooks.
//
// Events and the election itself use clients of their own, which carry no token.
package fencedmanager
