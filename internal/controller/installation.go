// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// installation is what the registrar has found out about the registration, for the conditions of FencedLeases. It lives in
// memory: a replica that is newly elected finds out again before it changes any condition.
type installation struct {
	mu sync.RWMutex
	// known is false until something is certain. Until then leases keep the conditions that an earlier replica gave them:
	// at a change of replicas in the middle of a change of guards, nothing that was in force appears not to be.
	known   bool
	current installed
	// settled are the spec generations of leases whose guards have been in force since a probe showed it. A later
	// registration guards them too, so while API servers change over they stay in force.
	settled map[types.UID]int64
	// settledMessage is that of the probe.
	settledMessage string
	// failure is why the registration that the leases ask for cannot be written, or empty. The one before stays in force.
	failure string
}

// installed is one registration and whether it is in force.
type installed struct {
	// hash is that of the registration's content.
	hash string
	// generations are the spec generations of the FencedLeases that it was built from.
	generations map[types.UID]int64
	problems    map[types.UID][]Problem
	// done is what had to be done to it in this pass.
	done    change
	verdict verdict
}

// verdict says whether a registration is in force on every API server.
type verdict struct {
	inForce bool
	// unreachable says that it is not known, because an API server cannot be reached.
	unreachable bool
	// reason is that of the condition Ready while the registration is not in force.
	reason  string
	message string
}

// report is what an installation says about one FencedLease.
type report struct {
	// known is false until the registrar has found out something.
	known bool
	// verdict says whether the lease's guards are in force for its spec generation.
	verdict verdict
	// problems are the guards that cannot be installed as they are written. They are of this spec generation if the verdict
	// is that the guards are in force.
	problems []Problem
}

func newInstalled(registration Registration, leases []v1alpha1.FencedLease, done change, probed ProbeReport) installed {
	generations := make(map[types.UID]int64, len(leases))
	for i := range leases {
		generations[leases[i].UID] = leases[i].Generation
	}
	return installed{
		hash: registration.Hash, generations: generations, problems: registration.Problems, done: done, verdict: judge(probed),
	}
}

// judge makes one verdict of the outcomes for all API servers.
func judge(probed ProbeReport) verdict {
	for _, outcome := range []ProbeOutcome{ProbeFailed, ProbeNotYet, ProbeUnreachable} {
		i := slices.IndexFunc(probed.Results, func(result ProbeResult) bool { return result.Outcome == outcome })
		if i < 0 {
			continue
		}
		v := verdict{
			unreachable: outcome == ProbeUnreachable,
			reason:      v1alpha1.ReasonProbeFailed,
			message:     fmt.Sprintf("not shown to be in force on API server %s: %s", probed.Results[i].Server, probed.Results[i].Message),
		}
		if outcome == ProbeNotYet {
			v.reason = v1alpha1.ReasonInstalling
		}
		return v
	}
	message := fmt.Sprintf("a probe through each of %d API servers was refused by the installed guards", len(probed.Results))
	if probed.Fallback != "" {
		message = "a probe through the configured address was refused by the installed guards; other API servers were not asked, as " + probed.Fallback
	}
	return verdict{inForce: true, message: message}
}

// of returns the report about a lease.
func (i *installation) of(lease *v1alpha1.FencedLease) report {
	i.mu.RLock()
	defer i.mu.RUnlock()
	r := report{known: i.known, problems: i.current.problems[lease.UID]}
	generation, included := i.current.generations[lease.UID]
	settled, isSettled := i.settled[lease.UID]
	switch {
	case isSettled && settled == lease.Generation:
		r.verdict = verdict{inForce: true, message: i.settledMessage}
	case i.failure != "":
		r.verdict = verdict{reason: v1alpha1.ReasonInstalling, message: "the registration cannot be written: " + i.failure}
	case !included || generation != lease.Generation:
		r.verdict = verdict{reason: v1alpha1.ReasonInstalling, message: "the registration is about to be written"}
	default:
		r.verdict = i.current.verdict
	}
	return r
}

// hash returns the hash of the registration that was applied last, or the empty string.
func (i *installation) hash() string {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.current.hash
}

// failed records that the registration cannot be written.
func (i *installation) failed(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known, i.failure = true, err.Error()
}

// succeeded records a registration that is written, and what probes have shown.
func (i *installation) succeeded(now installed) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := i.current
	i.current, i.failure = now, ""
	i.known = i.known || now.done == healed || now.verdict.reason != v1alpha1.ReasonInstalling
	switch {
	case now.verdict.inForce:
		i.settled, i.settledMessage = now.generations, now.verdict.message
	case now.done == healed, now.hash == before.hash && !now.verdict.unreachable:
		// It was not what it should have been, or is no longer in force though nothing was changed. An API server that
		// cannot be reached proves neither, and begins with what is registered when it starts anew.
		i.settled = nil
	default:
		i.settled = stillSettled(i.settled, before, now)
	}
}

// stillSettled returns the leases that both registrations guard alike.
func stillSettled(settled map[types.UID]int64, before, now installed) map[types.UID]int64 {
	kept := map[types.UID]int64{}
	for uid, generation := range settled {
		if now.generations[uid] == generation && slices.Equal(before.problems[uid], now.problems[uid]) {
			kept[uid] = generation
		}
	}
	return kept
}
