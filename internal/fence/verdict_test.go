// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/pkg/token"
)

func TestVerdictShowsWhatWasPresented(t *testing.T) {
	t.Parallel()
	presented := token.Token{Generation: 34, Term: termB, Operation: "2"}
	const markB, nowB = "34.bbbbbbbb/1", "34.bbbbbbbb/2"
	for name, tc := range map[string]struct {
		write     fence.Write
		presented token.Token
		carrier   fence.Carrier
	}{
		"a changed annotation":                {update(marked(markB), marked(nowB)), presented, fence.CarrierAnnotation},
		"an inherited annotation is nothing":  {update(marked(markB), marked(markB)), token.Token{}, fence.CarrierNone},
		"the request, stamped":                {update(marked(markB), marked(nowB), carrying(nowB)), presented, fence.CarrierRequest},
		"the request, not stamped":            {update(marked(markB), marked(markB), carrying(nowB)), presented, fence.CarrierRequest},
		"the request of a delete":             {remove(marked(markB), carrying(nowB)), presented, fence.CarrierRequest},
		"a malformed annotation is no token":  {update(marked(markB), marked("x")), token.Token{}, fence.CarrierNone},
		"a removed mark, whatever is carried": {update(marked(markB), marked(""), carrying(nowB)), token.Token{}, fence.CarrierNone},
		"two values are no token":             {remove(marked(markB), carrying(nowB, nowB)), token.Token{}, fence.CarrierNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, v := range []fence.View{fresh(held()), cached(held()), cached(inAudit()), fresh(inAudit())} {
				got := fence.Decide(tc.write, v)
				if diff := cmp.Diff(tc.presented, got.Presented); diff != "" {
					t.Errorf("presented (-want +got):\n%s", diff)
				}
				if got.Carrier != tc.carrier {
					t.Errorf("carrier %q, want %q", got.Carrier, tc.carrier)
				}
				if diff := cmp.Diff(v.Lease, got.Lease); diff != "" {
					t.Errorf("lease (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestAheadIsAGenerationAboveTheLease(t *testing.T) {
	t.Parallel()
	const markB = "34.bbbbbbbb/1"
	for name, tc := range map[string]struct {
		write fence.Write
		view  fence.View
		want  int64
	}{
		"nothing is ahead":                         {update(marked(markB), marked("34.bbbbbbbb/2")), fresh(held()), 0},
		"a future token":                           {create(marked("41.cccccccc")), fresh(held()), 41},
		"a mark above a current token":             {update(marked("40.cccccccc/1"), marked("34.bbbbbbbb/2")), fresh(held()), 40},
		"a mark above, seen in a write without":    {update(marked("40.cccccccc/1"), marked("40.cccccccc/1")), fresh(held()), 40},
		"a mark above, seen in a write let pass":   {update(marked("40.cccccccc/1"), marked("40.cccccccc/1")), freshForOthers(held()), 40},
		"a mark above, seen in its removal":        {update(marked("40.cccccccc/1"), marked("")), fresh(held()), 40},
		"the higher of mark and token":             {update(marked("40.cccccccc/1"), marked("41.cccccccc/1")), fresh(held()), 41},
		"an implausible mark is shown, not judged": {update(marked("2000000000000000"), marked("34.bbbbbbbb/2")), fresh(held()), 2_000_000_000_000_000},
		"a mark above a cached lease":              {update(marked("40.cccccccc/1"), marked("34.bbbbbbbb/2")), cached(held()), 40},
		"a mark that is no token":                  {update(marked("900.x"), marked("900.x")), fresh(held()), 0},
		"any token is ahead of a lease never held": {create(marked("1")), fresh(neverHeld()), 1},
		"a lease that is gone is behind nothing":   {update(marked("40.cccccccc/1"), marked("41.cccccccc/1")), fresh(gone()), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := fence.Decide(tc.write, tc.view).Ahead; got != tc.want {
				t.Errorf("ahead %d, want %d", got, tc.want)
			}
		})
	}
}

func TestAdmits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		verdict fence.Verdict
		want    bool
	}{
		"the zero verdict": {fence.Verdict{}, false},
		"allow":            {fence.Verdict{Outcome: fence.Allow}, true},
		"deny":             {fence.Verdict{Outcome: fence.Deny}, false},
		"deny in Audit":    {fence.Verdict{Outcome: fence.Deny, Audited: true}, true},
		"needs a read":     {fence.Verdict{Outcome: fence.NeedsRead, Audited: true}, false},
		"unavailable":      {fence.Verdict{Outcome: fence.Unavailable, Audited: true}, false},
		"an unknown word":  {fence.Verdict{Outcome: "allow"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.verdict.Admits(); got != tc.want {
				t.Errorf("admits %v, want %v", got, tc.want)
			}
		})
	}
}

// Clients and metrics know the reasons by these words: they are part of the contract.
func TestReasonsAreAClosedSet(t *testing.T) {
	t.Parallel()
	wantAllow := []fence.Reason{"CurrentToken", "SealedTerm", "DeleteIntent", "SystemWriter", "NotSubject", "Overridden", "NotGuarded"}
	wantDeny := []fence.Reason{
		"StaleToken", "MissingToken", "Released", "FutureToken", "ForkedTerm", "MalformedToken", "MarkTampered", "FinalDelete", "AlreadyApplied",
	}
	if diff := cmp.Diff(wantAllow, fence.AllowReasons()); diff != "" {
		t.Errorf("reasons of Allow (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantDeny, fence.DenyReasons()); diff != "" {
		t.Errorf("reasons of Deny (-want +got):\n%s", diff)
	}
	fence.DenyReasons()[0] = "changed"
	if fence.DenyReasons()[0] != fence.StaleToken {
		t.Error("a caller can change the set")
	}
}

// Where a caller forgets a field, the fence is shut.
func TestZeroValuesOpenNothing(t *testing.T) {
	t.Parallel()
	mark := marked("34.bbbbbbbb/1")
	for name, tc := range map[string]struct {
		write fence.Write
		view  fence.View
	}{
		"nothing is known":           {fence.Write{}, fence.View{}},
		"the view is not known":      {update(mark, marked("34.bbbbbbbb/2")), fence.View{}},
		"the origin is not known":    {update(mark, marked("34.bbbbbbbb/2")), fence.View{Lease: held()}},
		"the lease was never held":   {update(mark, mark), fence.View{Origin: fence.Linearizable, MustPresent: true}},
		"the change is not known":    {update(mark, mark, func(w *fence.Write) { w.Writer.Username, w.Change = collector, 0 }), fresh(held())},
		"the writers are not known":  {remove(mark, by(collector, fence.ChangeNothing), func(w *fence.Write) { w.System = fence.SystemWriters{} }), fresh(held())},
		"the writer has no name":     {remove(mark, by("", fence.ChangeNothing)), fresh(held())},
		"the override has no reason": {remove(mark, func(w *fence.Write) { w.Override.Permitted = true }), fresh(held())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := fence.Decide(tc.write, tc.view); got.Admits() {
				t.Errorf("admitted: %s", got.Reason)
			}
		})
	}
}
