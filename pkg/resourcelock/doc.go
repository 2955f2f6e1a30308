// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcelock is client-go's leader-election lock on a FencedLease: hand it to client-go's LeaderElector as
// Lock, or to controller-runtime's manager as LeaderElectionResourceLockInterface.
//
// Each possession is a term with a generation of its own, so that the API server can refuse what an earlier leader
// still sends. [Lock.Term] and [Lock.Token] tell the term that the elector holds now. Take the term once, when
// OnStartedLeading begins, and use that value for all the work that the callback starts: a value that was asked for later
// may belong to a later term, and would present old work as new.
//
// # Who creates the lease
//
// A FencedLease is policy, and an operator creates it. By default Create refuses, and the elector tries again until the
// lease is there; [Options.CreateWith] lets the lock create a missing one. A new lease can be acquired as soon as the
// controller has set status.generationFloor; before that, Get answers [ErrNotReady].
//
// A candidate needs the verbs get on fencedleases and patch on fencedleases/status, and create on fencedleases only with
// CreateWith.
//
// # What counts as a renewal
//
// The elector takes a lease over after it has seen no change of the raw record for the lease duration. The raw record
// holds the lease's uid, generation, term, holderIdentity, acquireTime, renewTime and spec.leaseDurationSeconds. Nothing
// else counts: neither conditions, which the controller writes, nor resourceVersion, guards or credentials.
//
// The duration that followers wait is spec.leaseDurationSeconds, whatever the LeaseDuration of the elector. Set the
// elector's LeaseDuration to the same value: the fence holds with any, but a leader that believes longer in its lease
// than the followers wait is overthrown while it works. The lock sends a Warning event then.
//
// # What the lock does with the elector's calls
//
// An elector's Update is one of three writes, all of them merge patches of the status:
//
//   - acquisition, if the lock has no term: a new term under the next generation, on the condition that the lease is still
//     at the resourceVersion that the elector's last Get returned. Without a Get since the last Update the answer is a
//     conflict, and the elector reads and decides anew.
//   - renewal: renewTime alone, naming generation, term and holder, so that the rules of the FencedLease refuse a late one.
//   - release: an empty holder, naming generation and term. It can end the lock's own term only, never a successor's.
//
// A refused renewal or release is a [*LostError], a conflict to apierrors.IsConflict that says who holds the lease.
//
// A process that starts again with the identity of its predecessor gets a new term at once, and so does an elector that
// ran before: a term is never continued by someone who did not acquire it. A lease that was deleted and created anew ends
// the term too.
//
// # Losing the lead
//
// client-go's elector can lose the lease and take it back within one run, without a call of OnStoppedLeading. Work of the
// old term would go on under the new one, so the lock refuses to acquire until the elector has stopped leading: Term
// reports false at once, OnStoppedLeading comes when the elector's RenewDeadline is over, and after that the elector may
// run again, under a new term.
//
// With handover Seal, an acquisition or renewal answers [ErrSealPending] until every guarded object has been stamped, so
// that OnStartedLeading begins only when no older write can land any more.
//
// # leaderTransitions
//
// The record's LeaderTransitions shows the generation, at most 2147483647: a generation is an int64 and starts above the
// revision of the store, so an int32 cannot hold all of them. It is for display; what the elector writes into it is
// ignored. Use [Lock.Token] to fence writes, never LeaderTransitions.
package resourcelock
