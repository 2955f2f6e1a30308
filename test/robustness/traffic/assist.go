// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/internal/possession"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

const (
	// assistantPace is by how much an assistant is slower than a writer of a term.
	assistantPace = 8
	// togetherOf is in how many operations of an assistant one is made at the moment at which the others make it, too.
	togetherOf = 4
	// glance is how often an assistant looks at the lease.
	glance = int64(500 * time.Millisecond)
)

// assist makes business operations by the token that the lease shows, whoever holds it: the same ones that others make, at
// the same time. The token may have ended since.
func (a *actor) assist(ctx context.Context) {
	plain, err := httpClient(a.rest)
	if err != nil {
		a.fail(err)
		return
	}
	rest, err := possession.NewClient(a.rest)
	if err != nil {
		a.fail(err)
		return
	}
	lease := possession.Client{REST: rest, Namespace: a.config.Lease.Namespace, Name: a.config.Lease.Name}
	config := a.config
	config.Kind = Assistant
	w := writer{choices: newChooser(config, 0, 0), ended: func() bool { return false }, plain: plain, caller: a.caller("assistant")}
	for looked := int64(0); ; {
		what := w.choices.next()
		pause := time.Duration(int64(a.config.Pace) * int64(what.pause*assistantPace) / 1000)
		together := what.which%togetherOf == 0
		if together {
			pause = time.Duration(jobLength - history.Now()%jobLength)
		}
		if !history.Wait(ctx, pause) {
			return
		}
		if together {
			// All who do this ask for the same operation on the same object.
			what.verb, what.back, what.lost = history.Apply, 0, 0
			what.object = a.config.Lease.Objects[history.Now()/jobLength%int64(len(a.config.Lease.Objects))]
		}
		if now := history.Now(); now-looked > glance || w.token.IsZero() {
			w.token, err = tokenOf(ctx, lease)
			if err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, err)
			}
			looked = now
		}
		if !w.token.IsZero() {
			w.repeat(ctx, what)
		}
	}
}

// tokenOf reads the token of the holder, the zero one if there is none.
func tokenOf(ctx context.Context, client possession.Client) (token.Token, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lease, err := client.Get(ctx)
	if err != nil || ptr.Deref(lease.Status.HolderIdentity, "") == "" {
		return token.Token{}, err
	}
	return token.Parse(ptr.Deref(lease.Status.Token, ""))
}
