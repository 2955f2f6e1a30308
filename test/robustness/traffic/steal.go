// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/possession"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

var errStolenEnded = errors.New("the thief has gone")

// steals takes the lease from time to time, whoever holds it: whoever may write the lease can. The present holder does not
// know yet and goes on, so two leaders write at full speed, and writes are on their way at the handover.
func (a *actor) steals(ctx context.Context) {
	if a.config.Steal == 0 {
		return
	}
	random := rand.New(rand.NewPCG(a.config.Seed, uint64(a.config.Number)<<32|1<<31)) //nolint:gosec // no secret
	for history.Wait(ctx, a.config.Steal/2+time.Duration(random.Int64N(int64(a.config.Steal)))) {
		hold := time.Duration(random.Int64N(int64(2 * a.config.LeaseDuration)))
		if err := a.steal(ctx, hold); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func (a *actor) steal(ctx context.Context, hold time.Duration) error {
	rest, err := possession.NewClient(a.recorded())
	if err != nil {
		return err
	}
	client := possession.Client{REST: rest, Namespace: a.config.Lease.Namespace, Name: a.config.Lease.Name}
	acquiring, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lease, err := client.Get(acquiring)
	if err != nil {
		return err
	}
	if !possession.HasStatus(lease) {
		return possession.NotReady(client)
	}
	identity := a.config.Name + "-" + strconv.FormatInt(a.config.Number, 10)
	patch, term, err := possession.Acquisition(lease, identity, possession.NewTermID(), time.Now())
	if err != nil {
		return err
	}
	if _, err := client.PatchStatus(acquiring, patch); err != nil {
		return err
	}
	held, done := context.WithTimeout(ctx, hold)
	defer done()
	stolen := &stolenTerm{term: term, ctx: held}
	return a.work(held, ctx, holding{
		token: term.Token(), possession: stolen, ended: func() bool { return stolen.Err() != nil },
	})
}

// stolenTerm is a term that nobody renews.
type stolenTerm struct {
	term possession.Term
	ctx  context.Context //nolint:containedctx // it is how long the thief believes in the term
}

func (s *stolenTerm) Lease() types.NamespacedName {
	return types.NamespacedName{Namespace: s.term.Namespace, Name: s.term.Name}
}
func (s *stolenTerm) Token() token.Token       { return s.term.Token() }
func (s *stolenTerm) Guards() []v1alpha1.Guard { return nil }

func (s *stolenTerm) Err() error {
	if s.ctx.Err() != nil {
		return errStolenEnded
	}
	return nil
}
