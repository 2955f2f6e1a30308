// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/resourcelock"
)

// lock campaigns by client-go's elector for one term.
func (a *actor) lock(ctx context.Context) error {
	lock, err := resourcelock.New(a.recorded(), a.config.Lease.Namespace, a.config.Lease.Name,
		a.config.Name+"-"+strconv.FormatInt(a.config.Number, 10), resourcelock.Options{})
	if err != nil {
		return err
	}
	leading, stop := context.WithCancel(ctx)
	defer stop()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: a.config.LeaseDuration, RenewDeadline: a.config.LeaseDuration * 2 / 3,
		RetryPeriod: a.config.LeaseDuration / 8, ReleaseOnCancel: true, Name: a.config.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(work context.Context) {
				defer stop()
				if err := a.workUnder(work, ctx, lock); err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, err)
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(leading)
	return nil
}

// workUnder works under the term that the lock has now.
func (a *actor) workUnder(work, running context.Context, lock *resourcelock.Lock) error {
	possession, err := fenced.OfLock(lock)
	if err != nil {
		return err
	}
	return a.work(work, running, holding{
		token: possession.Token(), possession: possession, ended: func() bool { return possession.Err() != nil },
	})
}
