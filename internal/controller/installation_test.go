// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

func probed(outcomes ...ProbeOutcome) ProbeReport {
	r := ProbeReport{}
	for _, o := range outcomes {
		r.Results = append(r.Results, ProbeResult{Server: "10.0.0.1:6443", Outcome: o, Message: "why"})
	}
	return r
}

// step is one pass of the registrar.
type step struct {
	hash     string
	leases   []v1alpha1.FencedLease
	done     change
	outcomes []ProbeOutcome
	err      error
}

func TestALeaseIsInForceFromTheProbeOn(t *testing.T) {
	a, b := lease("ns", "a", own("reports")), lease("ns", "b", own("reports"))
	a2 := *a.DeepCopy()
	a2.Generation = 2
	apply := func(hash string, done change, outcome ProbeOutcome, leases ...v1alpha1.FencedLease) step {
		return step{hash: hash, leases: leases, done: done, outcomes: []ProbeOutcome{ProbeInForce, outcome}}
	}
	for name, test := range map[string]struct {
		steps   []step
		lease   v1alpha1.FencedLease
		unknown bool
		inForce bool
		reason  string
	}{
		"nothing was found out":                                      {lease: a, unknown: true, reason: v1alpha1.ReasonInstalling},
		"a new replica in the middle of a change":                    {steps: []step{apply("1", unchanged, ProbeNotYet, a)}, lease: a, unknown: true, reason: v1alpha1.ReasonInstalling},
		"installed and not yet everywhere":                           {steps: []step{apply("1", healed, ProbeNotYet, a)}, lease: a, reason: v1alpha1.ReasonInstalling},
		"everywhere":                                                 {steps: []step{apply("1", healed, ProbeInForce, a)}, lease: a, inForce: true},
		"a server cannot be reached":                                 {steps: []step{apply("1", healed, ProbeUnreachable, a)}, lease: a, reason: v1alpha1.ReasonProbeFailed},
		"a probe is answered otherwise":                              {steps: []step{apply("1", healed, ProbeFailed, a)}, lease: a, reason: v1alpha1.ReasonProbeFailed},
		"for an earlier spec":                                        {steps: []step{apply("1", healed, ProbeInForce, a)}, lease: a2, reason: v1alpha1.ReasonInstalling},
		"for another lease":                                          {steps: []step{apply("1", healed, ProbeInForce, a)}, lease: b, reason: v1alpha1.ReasonInstalling},
		"another lease is added":                                     {steps: []step{apply("1", healed, ProbeInForce, a), apply("2", renewed, ProbeNotYet, a, b)}, lease: a, inForce: true},
		"the added lease":                                            {steps: []step{apply("1", healed, ProbeInForce, a), apply("2", renewed, ProbeNotYet, a, b)}, lease: b, reason: v1alpha1.ReasonInstalling},
		"its own spec changes":                                       {steps: []step{apply("1", healed, ProbeInForce, a), apply("2", renewed, ProbeNotYet, a2)}, lease: a2, reason: v1alpha1.ReasonInstalling},
		"somebody has deleted the registration":                      {steps: []step{apply("1", healed, ProbeInForce, a), apply("1", healed, ProbeNotYet, a)}, lease: a, reason: v1alpha1.ReasonInstalling},
		"a server cannot be reached any more":                        {steps: []step{apply("1", healed, ProbeInForce, a), apply("1", unchanged, ProbeUnreachable, a)}, lease: a, inForce: true},
		"a server does not refuse any more":                          {steps: []step{apply("1", healed, ProbeInForce, a), apply("1", unchanged, ProbeNotYet, a)}, lease: a, reason: v1alpha1.ReasonInstalling},
		"the webhook fails":                                          {steps: []step{apply("1", healed, ProbeInForce, a), apply("1", unchanged, ProbeFailed, a)}, lease: a, reason: v1alpha1.ReasonProbeFailed},
		"certificates are rotated":                                   {steps: []step{apply("1", healed, ProbeInForce, a), apply("1", renewed, ProbeInForce, a)}, lease: a, inForce: true},
		"the next registration cannot be written":                    {steps: []step{apply("1", healed, ProbeInForce, a), {err: errors.New("too large")}}, lease: a, inForce: true},
		"the lease that makes a registration that cannot be written": {steps: []step{apply("1", healed, ProbeInForce, a), {err: errors.New("too large")}}, lease: b, reason: v1alpha1.ReasonInstalling},
	} {
		t.Run(name, func(t *testing.T) {
			found := &installation{}
			for _, s := range test.steps {
				if s.err != nil {
					found.failed(s.err)
					continue
				}
				found.succeeded(newInstalled(Registration{Hash: s.hash}, s.leases, s.done, probed(s.outcomes...)))
			}
			got := found.of(&test.lease)
			want := []any{!test.unknown, test.inForce, test.reason}
			if diff := cmp.Diff(want, []any{got.known, got.verdict.inForce, got.verdict.reason}); diff != "" {
				t.Errorf("known, in force, reason (-want +got):\n%s\nmessage: %s", diff, got.verdict.message)
			}
		})
	}
}

func TestTheWorstOutcomeDecides(t *testing.T) {
	for name, test := range map[string]struct {
		report  ProbeReport
		inForce bool
		reason  string
		message string
	}{
		"all in force": {probed(ProbeInForce, ProbeInForce), true, "", "a probe through each of 2 API servers was refused by the installed guards"},
		"one not yet":  {probed(ProbeInForce, ProbeNotYet), false, v1alpha1.ReasonInstalling, "not shown to be in force on API server 10.0.0.1:6443: why"},
		"one failed":   {probed(ProbeNotYet, ProbeFailed), false, v1alpha1.ReasonProbeFailed, "not shown to be in force on API server 10.0.0.1:6443: why"},
		"by the configured address only": {
			ProbeReport{Results: []ProbeResult{{Outcome: ProbeInForce}}, Fallback: "the Service kubernetes has no endpoints"}, true, "",
			"a probe through the configured address was refused by the installed guards; other API servers were not asked, as the Service kubernetes has no endpoints",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := judge(test.report)
			if diff := cmp.Diff([]any{test.inForce, test.reason, test.message}, []any{v.inForce, v.reason, v.message}); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}
