// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"testing"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
)

// How a token arrives, by operation.
func TestHowATokenArrives(t *testing.T) {
	t.Parallel()
	const markA, markB, nowA, nowB = "33.aaaaaaaa/1", "34.bbbbbbbb/1", "33.aaaaaaaa/2", "34.bbbbbbbb/2"
	checkRows(t, map[string]row{
		"create presents its annotation, which has no old object to differ from": {
			create(marked(nowB)), fresh(held()), allow(fence.CurrentToken)},
		"create presents the request's token, which the policy has stamped": {
			create(marked(nowB), carrying(nowB)), fresh(held()), allow(fence.CurrentToken)},
		"create with the request's token that was not stamped would store no mark": {
			create(marked(""), carrying(nowB)), fresh(held()), unavailable(fence.NotStamped)},
		"create under an ended term is refused by the lease alone": {
			create(marked(nowA)), fresh(held()), deny(fence.StaleToken)},
		"update, patch and apply present a changed annotation": {
			update(marked(markB), marked(nowB)), fresh(held()), allow(fence.CurrentToken)},
		"update presents the request's token, stamped": {
			update(marked(markB), marked(nowB), carrying(nowB)), fresh(held()), allow(fence.CurrentToken)},
		"update with the request's token that was not stamped would not move the mark": {
			update(marked(markB), marked(markB), carrying(nowB)), fresh(held()), unavailable(fence.NotStamped)},
		"update with the request's token that is as stored moves nothing and needs no stamp": {
			update(marked(markB), marked(markB), carrying(markB)), fresh(held()), allow(fence.CurrentToken)},
		"update that leaves the annotation out of its patch inherits it and presents nothing": {
			update(marked(markB), marked(markB)), fresh(held()), deny(fence.MissingToken)},
		"update of an object without a mark presents its first annotation": {
			update(marked(""), marked(nowB)), fresh(held()), allow(fence.CurrentToken)},
		"update under an ended term is refused by the mark, exactly at the commit": {
			update(marked(markB), marked(nowA)), fresh(held()), deny(fence.StaleToken)},
		"update under an ended term is refused by the lease where the new leader has not written yet": {
			update(marked(markA), marked(nowA)), fresh(held()), deny(fence.StaleToken)},
		"status presents the annotation that its request shows in the mutating phase": {
			status(marked(markB), marked(nowB)), fresh(held()), allow(fence.CurrentToken)},
		"status presents the request's token, which no policy stamps there": {
			status(marked(markB), marked(markB), carrying(nowB)), fresh(held()), allow(fence.CurrentToken)},
		"status under an ended term is refused by the mark": {
			status(marked(markB), marked(nowA)), fresh(held()), deny(fence.StaleToken)},
		"status without annotations in its request presents nothing and removes nothing": {
			status(marked(markB), marked("")), fresh(held()), deny(fence.MissingToken)},
		"scale presents the request's token": {
			scale(marked(markB), carrying(nowB)), fresh(held()), allow(fence.CurrentToken)},
		"scale under an ended term is refused by the mark of the object behind it": {
			scale(marked(markB), carrying(nowA)), fresh(held()), deny(fence.StaleToken)},
		"scale without a token shows the stored annotation and presents nothing": {
			scale(marked(markB)), fresh(held()), deny(fence.MissingToken)},
		"delete presents the request's token": {
			remove(marked(markB), carrying(nowB)), fresh(held()), allow(fence.CurrentToken)},
		"delete under an ended term is refused by the mark": {
			remove(marked(markB), carrying(nowA)), fresh(held()), deny(fence.StaleToken)},
		"delete without a token is refused": {
			remove(marked(markB)), fresh(held()), deny(fence.MissingToken)},
		"delete of an object whose mark asks for it under the current generation passes": {
			remove(marked("34.bbbbbbbb/delete")), fresh(held()), allow(fence.DeleteIntent)},
		"delete of an object whose mark asks for it without naming a term passes": {
			remove(marked("34/delete")), fresh(held()), allow(fence.DeleteIntent)},
		"delete intent of an ended term has no force": {
			remove(marked("33.aaaaaaaa/delete")), fresh(held()), deny(fence.MissingToken)},
		"delete intent of another history has no force": {
			remove(marked("34.zzzzzzzz/delete")), fresh(held()), deny(fence.MissingToken)},
		"delete intent of a released term has no force": {
			remove(marked("34.bbbbbbbb/delete")), fresh(released()), deny(fence.MissingToken)},
		"delete intent does not help a stale token": {
			remove(marked("34.bbbbbbbb/delete"), carrying(nowA)), fresh(held()), deny(fence.StaleToken)},
		"delete intent is for deletes only": {
			update(marked("34.bbbbbbbb/delete"), marked("34.bbbbbbbb/delete")), fresh(held()), deny(fence.MissingToken)},
		"two values under one key are malformed, also if they are equal": {
			update(marked(markB), marked(nowB), carrying(nowB, nowB)), fresh(held()), deny(fence.MalformedToken)},
		"an annotation and a request that disagree are malformed": {
			update(marked(markB), marked(nowB), carrying(nowA)), fresh(held()), deny(fence.MalformedToken)},
		"a status request whose annotation and extra disagree is malformed": {
			status(marked(markB), marked(nowB), carrying("34.bbbbbbbb/3")), fresh(held()), deny(fence.MalformedToken)},
		"an empty value in the request is malformed": {
			remove(marked(markB), carrying("")), fresh(held()), deny(fence.MalformedToken)},
		"a key without values presents nothing": {
			remove(marked(markB), carrying()), fresh(held()), deny(fence.MissingToken)},
		"a token for another lease presents nothing to this one": {
			remove(marked(markB), extra("token.fencedlease.io/other", nowB)), fresh(held()), deny(fence.MissingToken)},
	})
}

// An operation that the object records is applied once, by whatever verb and under whatever generation it comes again.
func TestAnOperationIsAppliedOnce(t *testing.T) {
	t.Parallel()
	const markB, again, records = "34.bbbbbbbb/18", "34.bbbbbbbb/17", "18=34@2026-05-04T10:11:12Z 17=33"
	applied := deny(fence.AlreadyApplied)
	stored := func() *fence.Object { return recording(markB, records) }
	showing := func(mark string) *fence.Object { return recording(mark, records) }
	checkRows(t, map[string]row{
		"update by annotation, after a newer operation":  {update(stored(), showing(again)), fresh(held()), applied},
		"update by request":                              {update(stored(), showing(again), carrying(again)), fresh(held()), applied},
		"update by request that was not stamped":         {update(stored(), stored(), carrying(again)), fresh(held()), applied},
		"update with a credential, which names its term": {update(stored(), showing(again), using(credentialOfB)), fresh(listing(held())), applied},
		"status": {status(stored(), stored(), carrying(again)), fresh(held()), applied},
		"scale":  {scale(stored(), carrying(again)), fresh(held()), applied},
		"delete": {remove(stored(), carrying(again)), fresh(held()), applied},
		"by somebody who need not present a token":          {update(stored(), showing(again)), freshForOthers(held()), applied},
		"in a term that is still to be sealed":              {update(stored(), showing(again)), fresh(unsealed()), applied},
		"in Audit it is admitted":                           {update(stored(), showing(again)), fresh(inAudit()), audit(fence.AlreadyApplied)},
		"under a sealed term the cached lease must be read": {update(stored(), showing(again)), covered(sealed()), needsRead},
		"under a sealed term another operation needs no read": {
			update(stored(), showing("34.bbbbbbbb/19")), covered(sealed()), allow(fence.SealedTerm)},
		"a create meets no record":     {create(showing(again)), fresh(held()), allow(fence.CurrentToken)},
		"another operation is applied": {update(stored(), showing("34.bbbbbbbb/1")), fresh(held()), allow(fence.CurrentToken)},
		"the same write once more inherits the mark, as others do, and presents nothing": {
			update(stored(), stored()), fresh(held()), deny(fence.MissingToken)},
		"an ended leader is told that it is stale":   {update(stored(), showing("33.aaaaaaaa/17")), fresh(held()), deny(fence.StaleToken)},
		"a released leader is told that it is":       {update(stored(), showing(again)), fresh(released()), deny(fence.Released)},
		"another history is told that it is":         {update(stored(), showing("34.zzzzzzzz/17")), fresh(held()), deny(fence.ForkedTerm)},
		"a nonce is never looked up":                 {update(recording(markB, "_17=34"), marked("34.bbbbbbbb/_17")), fresh(held()), allow(fence.CurrentToken)},
		"the intent to delete is never looked up":    {update(recording(markB, "delete=34"), marked("34.bbbbbbbb/delete")), fresh(held()), allow(fence.CurrentToken)},
		"what is stored and no record tells nothing": {update(recording(markB, "17=x 17"), marked(again)), fresh(held()), allow(fence.CurrentToken)},
		"what another lease records tells nothing here": {
			update(annotated(marked(markB), "operations.fencedlease.io/other", "17=34"), marked(again)), fresh(held()), allow(fence.CurrentToken)},
	})
}

func TestTheRecordComesWithTheVerdict(t *testing.T) {
	t.Parallel()
	const again, records = "34.bbbbbbbb/17", "18=34 17=33@2026-05-04T10:11:12Z"
	for name, test := range map[string]struct {
		write fence.Write
		want  string
	}{
		"of a repetition": {update(recording("34.bbbbbbbb/18", records), recording(again, records)), "17=33@2026-05-04T10:11:12Z"},
		"of the operation of an inherited mark, by which its writer knows a repetition": {
			update(recording(again, records), recording(again, records)), "17=33@2026-05-04T10:11:12Z"},
		"but not of a write that removes nothing and shows no annotations": {status(recording(again, records), marked("")), ""},
		"but not of a scale, which shows what is stored":                   {scale(recording(again, records)), ""},
	} {
		got := fence.Decide(test.write, fresh(held())).Recorded
		if text := got.String(); got.Operation != "" && text != test.want || got.Operation == "" && test.want != "" {
			t.Errorf("%s: want %q, got %q", name, test.want, text)
		}
	}
}

// A term that must be sealed writes nothing before it is, whoever holds it and whether or not it waits.
func TestNothingIsWrittenBeforeTheSeal(t *testing.T) {
	t.Parallel()
	const markA, intentB, nowA, nowB = "33.aaaaaaaa/1", "34.bbbbbbbb/delete", "33.aaaaaaaa/2", "34.bbbbbbbb/2"
	early := unavailable(fence.SealPending)
	checkRows(t, map[string]row{
		"a create":       {create(marked(nowB)), fresh(unsealed()), early},
		"an update":      {update(marked(markA), marked(nowB)), fresh(unsealed()), early},
		"a status write": {status(marked(markA), marked(markA), carrying(nowB)), fresh(unsealed()), early},
		"a scale write":  {scale(marked(markA), carrying(nowB)), fresh(unsealed()), early},
		"a delete":       {remove(marked(markA), carrying(nowB)), fresh(unsealed()), early},
		"a late create is deleted by the seal itself": {remove(marked(intentB)), fresh(unsealed()), allow(fence.DeleteIntent)},
		"a write with the credential of the term": {
			update(marked(markA), marked("34.bbbbbbbb"), using(credentialOfB)), fresh(unsealed()), early},
		"a write of an object that the seal has stamped already": {
			update(marked("34.bbbbbbbb"), marked(nowB)), fresh(unsealed()), early},
		"a write of a lazy term that follows one with a seal": {
			update(marked(markA), marked(nowB)), fresh(sealedWith(func(l *fence.Lease) {
				l.SealedGeneration, l.Handover = 33, v1alpha1.HandoverLazy
			})), early},
		"a write of an ended term is told so": {update(marked(markA), marked(nowA)), fresh(unsealed()), deny(fence.StaleToken)},
		"a write by override passes":          {update(marked(markA), marked(markA), overriding(true)), fresh(unsealed()), allow(fence.Overridden)},
		"a write that need not present a token passes": {
			update(marked(markA), marked(markA)), freshForOthers(unsealed()), allow(fence.NotSubject)},
		"Audit holds nobody up": {
			update(marked(markA), marked(nowB)), fresh(sealedWith(func(l *fence.Lease) { l.SealedGeneration, l.Audit = 33, true })),
			allow(fence.CurrentToken)},
		"a term that needs no seal waits for none": {
			update(marked(markA), marked(nowB)), fresh(sealedWith(func(l *fence.Lease) {
				l.SealedGeneration, l.Handover, l.Seal = 33, v1alpha1.HandoverLazy, v1alpha1.SealNotRequired
			})), allow(fence.CurrentToken)},
	})
}

// The verdict, in the order of the contract.
func TestTheOrderOfTheVerdict(t *testing.T) {
	t.Parallel()
	const markB, nowB = "34.bbbbbbbb/1", "34.bbbbbbbb/2"
	checkRows(t, map[string]row{
		"the mark is removed by the holder": {
			update(marked(markB), marked("")), fresh(held()), deny(fence.MarkTampered)},
		"the mark is removed by a writer that need not present": {
			update(marked(markB), marked("")), freshForOthers(held()), deny(fence.MarkTampered)},
		"the mark is removed although the request carries the current token": {
			update(marked(markB), marked(""), carrying(nowB)), fresh(held()), deny(fence.MarkTampered)},
		"the mark is removed by override": {
			update(marked(markB), marked(""), overriding(true)), fresh(held()), deny(fence.MarkTampered)},
		"the mark is removed by a system writer": {
			update(marked(markB), marked(""), by(collector, fence.ChangeOther)), fresh(held()), deny(fence.MarkTampered)},
		"the mark is removed by a system writer whose change is said to be harmless": {
			update(marked(markB), marked(""), by(collector, fence.ChangeOwnership)), fresh(held()), deny(fence.MarkTampered)},
		"the mark is removed, as the cached lease shows already": {
			update(marked(markB), marked("")), cached(held()), deny(fence.MarkTampered)},
		"the mark of an earlier term is removed": {
			update(marked("33.aaaaaaaa/1"), marked("")), fresh(held()), deny(fence.MarkTampered)},
		"a mark that is no token may be removed by who need not present": {
			update(marked("leader"), marked("")), freshForOthers(held()), allow(fence.NotSubject)},
		"a mark that is no token bars no current token": {
			update(marked("leader"), marked(nowB)), fresh(held()), allow(fence.CurrentToken)},
		"the mark is lowered by a writer that need not present": {
			update(marked(markB), marked("33.aaaaaaaa/1")), freshForOthers(held()), deny(fence.StaleToken)},
		"the mark is rewritten to garbage by a writer that need not present": {
			update(marked(markB), marked("leader")), freshForOthers(held()), deny(fence.MalformedToken)},
		"the mark is set to the empty text": {
			update(marked(markB), annotated(marked(""), tokenKey, "")), freshForOthers(held()), deny(fence.MalformedToken)},
		"the mark is raised above the lease by a writer that need not present": {
			update(marked(markB), marked("35.cccccccc/1")), freshForOthers(held()), deny(fence.FutureToken)},
		"the mark is rewritten for another history by a writer that need not present": {
			update(marked(markB), marked("34.zzzzzzzz/1")), freshForOthers(held()), deny(fence.ForkedTerm)},
		"a malformed token is refused before a missing one is asked for": {
			create(marked("034")), freshForOthers(held()), deny(fence.MalformedToken)},
		"no token, and the writer is a subject": {
			create(marked("")), fresh(held()), deny(fence.MissingToken)},
		"no token, and the writer is not a subject": {
			create(marked("")), freshForOthers(held()), allow(fence.NotSubject)},
		"a token of a writer that is not a subject is judged all the same": {
			create(marked("33.aaaaaaaa")), freshForOthers(held()), deny(fence.StaleToken)},
		"generation and term equal and held": {
			create(marked(nowB)), fresh(held()), allow(fence.CurrentToken)},
		"the generation alone is enough": {
			create(marked("34")), fresh(held()), allow(fence.CurrentToken)},
		"lower than the lease": {
			create(marked("33.aaaaaaaa")), fresh(held()), deny(fence.StaleToken)},
		"lower than a released lease is stale, not released": {
			create(marked("33.aaaaaaaa")), fresh(released()), deny(fence.StaleToken)},
		"same generation, other term": {
			create(marked("34.zzzzzzzz")), fresh(held()), deny(fence.ForkedTerm)},
		"same generation, other term, released": {
			create(marked("34.zzzzzzzz")), fresh(released()), deny(fence.ForkedTerm)},
		"the term was released": {
			create(marked(nowB)), fresh(released()), deny(fence.Released)},
		"above the lease's": {
			create(marked("35.cccccccc")), fresh(held()), deny(fence.FutureToken)},
		"above a lease that was never held": {
			create(marked("1")), fresh(neverHeld()), deny(fence.FutureToken)},
		"at the lease and below the mark, as after a restore of the lease alone": {
			update(marked("40.cccccccc/1"), marked(nowB)), fresh(held()), deny(fence.StaleToken)},
		"an implausible mark bars every update": {
			update(marked("2000000000000000/1"), marked(nowB)), fresh(held()), deny(fence.StaleToken)},
		"an implausible mark lets the holder delete, which is the way out": {
			remove(marked("2000000000000000/1"), carrying(nowB)), fresh(held()), allow(fence.CurrentToken)},
		"an implausible mark lets no ended term delete": {
			remove(marked("2000000000000000/1"), carrying("33.aaaaaaaa")), fresh(held()), deny(fence.StaleToken)},
		"the lease is gone": {
			update(marked(markB), marked("33.aaaaaaaa/1")), fresh(gone()), allow(fence.NotGuarded)},
		"a cached lease cannot prove that it is gone": {
			update(marked(markB), marked(nowB)), cached(gone()), needsRead},
	})
}

func TestBreakGlass(t *testing.T) {
	t.Parallel()
	const markB = "34.bbbbbbbb/1"
	checkRows(t, map[string]row{
		"passes a missing token with a reason and the permission": {
			update(marked(markB), marked(markB), overriding(true)), fresh(held()), allow(fence.Overridden)},
		"passes nothing with a reason and without the permission": {
			update(marked(markB), marked(markB), overriding(false)), fresh(held()), deny(fence.MissingToken)},
		"passes nothing with the permission and without a reason": {
			update(marked(markB), marked(markB), func(w *fence.Write) { w.Override.Permitted = true }), fresh(held()), deny(fence.MissingToken)},
		"never passes a stale token": {
			update(marked(markB), marked("33.aaaaaaaa/1"), overriding(true)), fresh(held()), deny(fence.StaleToken)},
		"never passes a released token": {
			update(marked(markB), marked("34.bbbbbbbb/2"), overriding(true)), fresh(released()), deny(fence.Released)},
		"never passes a token of another history": {
			update(marked(markB), marked("34.zzzzzzzz/2"), overriding(true)), fresh(held()), deny(fence.ForkedTerm)},
		"never passes a malformed token": {
			update(marked(markB), marked("leader"), overriding(true)), fresh(held()), deny(fence.MalformedToken)},
		"passes a final delete": {
			update(terminating(markB, 1), terminating(markB, 0), overriding(true)), fresh(held()), allow(fence.Overridden)},
		"passes a delete": {
			remove(marked(markB), overriding(true)), fresh(held()), allow(fence.Overridden)},
		"waits for a read, since the permission is for the guards in force": {
			remove(marked(markB), overriding(true)), cached(held()), needsRead},
	})
}

func TestAuditDeniesNothing(t *testing.T) {
	t.Parallel()
	const markB, nowB = "34.bbbbbbbb/1", "34.bbbbbbbb/2"
	checkRows(t, map[string]row{
		"a stale token is noted": {
			update(marked(markB), marked("33.aaaaaaaa/1")), fresh(inAudit()), audit(fence.StaleToken)},
		"a missing token is noted": {
			remove(marked(markB)), fresh(inAudit()), audit(fence.MissingToken)},
		"a removed mark is noted": {
			update(marked(markB), marked("")), fresh(inAudit()), audit(fence.MarkTampered)},
		"a final delete is noted": {
			update(terminating(markB, 1), terminating(markB, 0)), fresh(inAudit()), audit(fence.FinalDelete)},
		"a current token is current": {
			update(marked(markB), marked(nowB)), fresh(inAudit()), allow(fence.CurrentToken)},
		"a token that was not stamped passes, since marks prove nothing in Audit": {
			update(marked(markB), marked(markB), carrying(nowB)), fresh(inAudit()), allow(fence.CurrentToken)},
		"a cached lease in Audit admits nothing": {
			update(marked(markB), marked("33.aaaaaaaa/1")), cached(inAudit()), needsRead},
	})
}

// Where reads come from: a cached lease may refuse, and never admits, but under a sealed term: see
// TestAWriteUnderASealedTermNeedsNoRead.
func TestACachedLease(t *testing.T) {
	t.Parallel()
	const markB, nowB = "34.bbbbbbbb/1", "34.bbbbbbbb/2"
	checkRows(t, map[string]row{
		"proves a token below it stale":          {create(marked("33.aaaaaaaa")), cached(held()), deny(fence.StaleToken)},
		"proves a token below a mark stale":      {update(marked(markB), marked("33.aaaaaaaa")), cached(held()), deny(fence.StaleToken)},
		"is not needed for a token below a mark": {update(marked(markB), marked("33.aaaaaaaa")), cached(leaseOfA()), deny(fence.StaleToken)},
		"is not needed for a malformed token":    {create(marked("leader")), cached(held()), deny(fence.MalformedToken)},
		"cannot tell a current token":            {update(marked(markB), marked(nowB)), cached(held()), needsRead},
		"cannot tell a future token":             {create(marked("35.cccccccc")), cached(held()), needsRead},
		"cannot tell another history":            {create(marked("34.zzzzzzzz")), cached(held()), needsRead},
		"cannot tell a released term":            {create(marked(nowB)), cached(released()), needsRead},
		"cannot tell who must present":           {create(marked("")), cached(held()), needsRead},
		"cannot tell a delete intent":            {remove(marked("34.bbbbbbbb/delete")), cached(held()), needsRead},
		"cannot tell a final delete":             {update(terminating(markB, 1), terminating(markB, 0)), cached(held()), needsRead},
		"is not needed for a system writer":      {remove(marked(markB), by(collector, fence.ChangeOther)), cached(held()), allow(fence.SystemWriter)},
	})
}

func TestSystemWriters(t *testing.T) {
	t.Parallel()
	const mark = "34.bbbbbbbb/1"
	same := func(e ...edit) fence.Write { return update(marked(mark), marked(mark), e...) }
	checkRows(t, map[string]row{
		"the garbage collector deletes":                                   {remove(marked(mark), by(collector, fence.ChangeOther)), fresh(held()), allow(fence.SystemWriter)},
		"the namespace controller deletes":                                {remove(marked(mark), by("system:serviceaccount:kube-system:namespace-controller", fence.ChangeOther)), fresh(held()), allow(fence.SystemWriter)},
		"a controller manager with one credential deletes":                {remove(marked(mark), by(shared, fence.ChangeOther)), fresh(held()), allow(fence.SystemWriter)},
		"the storage version migrator does not delete":                    {remove(marked(mark), by(migrator, fence.ChangeNothing)), fresh(held()), deny(fence.MissingToken)},
		"the garbage collector changes owners and finalizers":             {same(by(collector, fence.ChangeOwnership)), fresh(held()), allow(fence.SystemWriter)},
		"the garbage collector changes nothing":                           {same(by(collector, fence.ChangeNothing)), fresh(held()), allow(fence.SystemWriter)},
		"the garbage collector changes something else":                    {same(by(collector, fence.ChangeOther)), fresh(held()), deny(fence.MissingToken)},
		"the garbage collector removes the last finalizer":                {update(terminating(mark, 1), terminating(mark, 0), by(collector, fence.ChangeOwnership)), fresh(held()), allow(fence.SystemWriter)},
		"the migrator writes an unchanged object":                         {same(by(migrator, fence.ChangeNothing)), fresh(held()), allow(fence.SystemWriter)},
		"the migrator changes owners":                                     {same(by(migrator, fence.ChangeOwnership)), fresh(held()), deny(fence.MissingToken)},
		"a controller manager with one credential migrates":               {same(by(shared, fence.ChangeNothing)), fresh(held()), allow(fence.SystemWriter)},
		"a system writer creates":                                         {create(marked(""), by(collector, fence.ChangeNothing)), fresh(held()), deny(fence.MissingToken)},
		"a system writer writes a status":                                 {status(marked(mark), marked(mark), by(collector, fence.ChangeNothing)), fresh(held()), deny(fence.MissingToken)},
		"a system writer scales":                                          {scale(marked(mark), by(collector, fence.ChangeNothing)), fresh(held()), deny(fence.MissingToken)},
		"an unknown change opens nothing":                                 {same(by(collector, fence.Change(7))), fresh(held()), deny(fence.MissingToken)},
		"a user of the same name in another namespace is no collector":    {remove(marked(mark), by("system:serviceaccount:reports:generic-garbage-collector", fence.ChangeNothing)), fresh(held()), deny(fence.MissingToken)},
		"the API server's own user is no system writer":                   {remove(marked(mark), by("system:apiserver", fence.ChangeNothing)), fresh(held()), deny(fence.MissingToken)},
		"the autoscaler is no system writer":                              {scale(marked(mark), by("system:serviceaccount:kube-system:horizontal-pod-autoscaler", fence.ChangeNothing)), fresh(held()), deny(fence.MissingToken)},
		"a write of a harmless kind by a worker is judged like any other": {same(by(worker, fence.ChangeNothing)), fresh(held()), deny(fence.MissingToken)},
	})
}

// The rows of the truth table of admission and commit. Three of its rows have no review, and so no decision: deletion of
// the CRD, unsafe delete of an object that cannot be decoded, and the delete that follows a final update.
func TestTruthTable(t *testing.T) {
	t.Parallel()
	const markB, nowA, nowB = "34.bbbbbbbb/1", "33.aaaaaaaa/2", "34.bbbbbbbb/2"
	rows := map[string]row{}
	add := func(sentence string, view fence.View, current, stale fence.Write) {
		rows[sentence+", with the current token"] = row{current, view, allow(fence.CurrentToken)}
		rows[sentence+", with an ended term's token"] = row{stale, view, deny(fence.StaleToken)}
	}
	// PUT, patch and apply reach the decision as the same write: the result of the patch on the state that the commit is
	// conditioned on.
	put := func(now string) fence.Write { return update(marked(markB), marked(now)) }
	add("POST create has no old object, so the lease alone decides", fresh(held()), create(marked(nowB)), create(marked(nowA)))
	add("PUT is judged by the mark", fresh(held()), put(nowB), put(nowA))
	add("SSA on an existing object is judged by the mark", fresh(held()), put(nowB), put(nowA))
	add("SSA that creates arrives as a create", fresh(held()), create(marked(nowB)), create(marked(nowA)))
	add("SSA that creates and meets an object is asked again as an update", fresh(held()), put(nowB), put(nowA))
	add("/status shows the whole old object", fresh(held()), status(marked(markB), marked(nowB)), status(marked(markB), marked(nowA)))
	add("/scale shows the mark of the object behind it", fresh(held()),
		scale(marked(markB), carrying(nowB)), scale(marked(markB), carrying(nowA)))
	add("DELETE without finalizers is judged by the mark", fresh(held()),
		remove(marked(markB), carrying(nowB)), remove(marked(markB), carrying(nowA)))
	add("DELETE that waits for finalizers is judged by the mark", fresh(held()),
		remove(&fence.Object{Annotations: marked(markB).Annotations, Finalizers: 1}, carrying(nowB)),
		remove(&fence.Object{Annotations: marked(markB).Annotations, Finalizers: 1}, carrying(nowA)))
	add("DELETE of a terminating object is judged by the mark", fresh(held()),
		remove(terminating(markB, 1), carrying(nowB)), remove(terminating(markB, 1), carrying(nowA)))
	add("DELETECOLLECTION is a delete per item", fresh(held()),
		remove(marked(markB), carrying(nowB)), remove(marked(markB), carrying(nowA)))
	add("the update that empties the finalizers of a terminating object", fresh(held()),
		update(terminating(markB, 1), terminating(nowB, 0)), update(terminating(markB, 1), terminating(nowA, 0)))
	add("PUT on a terminating object with finalizers left", fresh(held()),
		update(terminating(markB, 2), terminating(nowB, 1)), update(terminating(markB, 2), terminating(nowA, 1)))

	rows["JSON and merge patch that leave the annotation out inherit the newer mark, and present nothing"] = row{
		update(marked(markB), marked(markB)), fresh(held()), deny(fence.MissingToken)}
	rows["a final update without a token is refused, since no other admission follows"] = row{
		update(terminating(markB, 1), terminating(markB, 0)), fresh(held()), deny(fence.FinalDelete)}
	rows["a final update without a token is refused to writers that need not present, too"] = row{
		update(terminating(markB, 1), terminating(markB, 0)), freshForOthers(held()), deny(fence.FinalDelete)}
	rows["an update of a terminating object that keeps a finalizer is no final one"] = row{
		update(terminating(markB, 2), terminating(markB, 1)), freshForOthers(held()), allow(fence.NotSubject)}
	rows["a status write of a terminating object keeps its finalizers, whatever its request shows"] = row{
		status(terminating(markB, 1), terminating(markB, 0)), freshForOthers(held()), allow(fence.NotSubject)}
	rows["a status write of a terminating object that has no finalizers deletes it"] = row{
		status(terminating(markB, 0), terminating(markB, 1)), freshForOthers(held()), deny(fence.FinalDelete)}
	rows["an update that empties the finalizers of an object that is not terminating deletes nothing"] = row{
		update(&fence.Object{Finalizers: 1}, &fence.Object{}), freshForOthers(held()), allow(fence.NotSubject)}
	rows["a conflict asks again, and the state that the new leader stored refuses"] = row{
		update(marked(markB), marked("33.aaaaaaaa/3")), fresh(held()), deny(fence.StaleToken)}
	rows["CONNECT is never admitted"] = row{
		write(fence.Connect, fence.SubresourceMain, nil, marked(nowB)), fresh(held()), unavailable(fence.UnsupportedOperation)}
	rows["CONNECT is never admitted without objects"] = row{
		write(fence.Connect, "proxy", nil, nil), freshForOthers(held()), unavailable(fence.UnsupportedOperation)}
	rows["an unknown subresource is never admitted"] = row{
		write(fence.Update, "resize", marked(markB), marked(nowB)), fresh(held()), unavailable(fence.UnsupportedOperation)}
	rows["an update without its old object is never admitted"] = row{
		update(nil, marked(nowB)), fresh(held()), unavailable(fence.UnsupportedOperation)}
	rows["an update without its new object is never admitted"] = row{
		update(marked(markB), nil), fresh(held()), unavailable(fence.UnsupportedOperation)}
	rows["a create without its object is never admitted"] = row{
		create(nil), fresh(held()), unavailable(fence.UnsupportedOperation)}
	rows["a create that shows an old object is never admitted"] = row{
		write(fence.Create, "", marked(markB), marked(nowB)), fresh(held()), unavailable(fence.UnsupportedOperation)}
	rows["a create on a subresource is never admitted"] = row{
		write(fence.Create, fence.SubresourceStatus, nil, marked(nowB)), fresh(held()), unavailable(fence.UnsupportedOperation)}
	rows["a delete without its old object is never admitted"] = row{
		remove(nil, carrying(nowB)), fresh(held()), unavailable(fence.UnsupportedOperation)}
	rows["a delete that shows a new object is never admitted"] = row{
		write(fence.Delete, "", marked(markB), marked(nowB)), fresh(held()), unavailable(fence.UnsupportedOperation)}
	rows["what no guard asks for is not admitted to a system writer either"] = row{
		write(fence.Delete, fence.SubresourceStatus, marked(markB), nil, by(collector, fence.ChangeNothing)), fresh(held()),
		unavailable(fence.UnsupportedOperation)}
	rows["what no guard asks for is not admitted for a lease that is gone either"] = row{
		write(fence.Connect, "", nil, nil), fresh(gone()), unavailable(fence.UnsupportedOperation)}
	checkRows(t, rows)
}

// An object that is guarded by two leases has two marks, and a write presents to each its own token.
func TestEachLeaseJudgesByItsOwnKey(t *testing.T) {
	t.Parallel()
	other := fence.Lease{Namespace: "reports", Name: "archiver", Generation: 7, Term: "dddddddd", Holder: "archiver-a"}
	const otherKey = "token.fencedlease.io/archiver"
	before := annotated(marked("34.bbbbbbbb/1"), otherKey, "7.dddddddd/1")
	after := annotated(marked("34.bbbbbbbb/2"), otherKey, "7.dddddddd/1")
	w := update(before, after)
	if got := essenceOf(fence.Decide(w, fresh(held()))); got != allow(fence.CurrentToken) {
		t.Errorf("the lease whose token is presented says %+v", got)
	}
	if got := essenceOf(fence.Decide(w, fresh(other))); got != deny(fence.MissingToken) {
		t.Errorf("the lease whose token is not presented says %+v", got)
	}
}
