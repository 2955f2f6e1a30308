// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leader elects a leader on a FencedLease and binds the leader's work to its term.
//
// An Elector watches the one lease: a released lease is taken within milliseconds, and a follower sends no request while
// the holder renews. [Elector.Run] campaigns, runs the work under each term that it wins, and gives the lease up when the
// work has returned.
//
//	elector, err := leader.New(leader.Options{Config: config, Namespace: "reports", Name: "report-writer"})
//	...
//	err = elector.Run(ctx, func(ctx context.Context, term *leader.Term) error {
//		reports, err := dynamic.NewForConfig(term.Wrap(config)) // every write carries the term's token
//		...
//	})
//
// # What a term promises
//
// A [Term] is one possession under one generation, and not the process: after it has ended it stays ended, also when the
// same process leads again. [Term.Err] tells. It looks at the clock itself, so that a process that was paused beyond its
// renew deadline gets an error from the first call after the pause, before any timer has fired. No local check can stop a
// write that pauses after it: the API server does, by the token.
//
// The order at a loss is fixed: the context of the work ends first, then Done is closed and Err answers, then come metrics,
// events and logs. The next term begins only when the work of the last one has returned, so two works never run at once.
//
// # Time
//
// A term is valid for the renew deadline, counted from before its last confirmed renewal was sent. Followers wait for the
// lease duration, which is longer, from when they last saw the lease renewed. Both count on the monotonic clock of their own
// process: wall clocks, and the times that the lease shows, are never compared. A host that sleeps may stop that clock; the
// holder then believes in a term that has ended, and the API server refuses its writes.
//
// A follower whose watch is late sees no renewals, and may take a live holder for a silent one. It then acquires on the
// condition that the lease is still at the resourceVersion that it has seen; a renewal has changed that, so the answer is a
// conflict, and the follower reads the lease and waits anew.
//
// # How work ends
//
//   - The work returns: the lease is released and Run returns what the work returned.
//   - The context of Run ends: the context of the work ends, and the lease is renewed while the work drains. When it has
//     returned the lease is released. After Options.ReleaseTimeout it is released all the same and Run returns
//     [ErrWorkRunning]: whatever the work still writes is refused.
//   - The term is lost: the context of the work ends. When the work has returned, Run campaigns for a new term, or returns
//     the [*LostError] with Options.ExitOnLoss.
//   - The work panics: the lease is released and Run panics with a [*PanicError].
//
// # Permissions
//
// An elector needs the verbs get and watch on fencedleases and patch on fencedleases/status, all of which can be limited to
// the name of the lease; list on API servers without streaming lists; and create with Options.CreateWith.
package leader
