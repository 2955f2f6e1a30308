// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 validates FencedLeases themselves: what the rules of their schema cannot say, because it needs another
// object, the requester's rights or the API server's kinds.
//
// Create and update share one pure function over values, review.check; the few questions that it needs answered are
// asked before it, and only those that the write makes necessary. An update that leaves the guards alone asks nothing: a
// label edit, the removal of a finalizer or a changed duration neither depends on other components nor is held to rules
// that the stored guards broke earlier.
//
// Deletions are never refused, they are warned about. Writes of the status never come here: holders acquire and renew
// while this webhook is down.
package v1alpha1
