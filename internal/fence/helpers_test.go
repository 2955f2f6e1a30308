// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
)

// The story of every test that does not say otherwise: report-a led under 33, report-b leads under 34.
const (
	tokenKey      = "token.fencedlease.io/report-writer"
	operationsKey = "operations.fencedlease.io/report-writer"
	overrideKey   = "override.fencedlease.io/report-writer"
	credentialKey = "authentication.kubernetes.io/credential-id"

	termA = "aaaaaaaa"
	termB = "bbbbbbbb"

	credentialOfA = "JTI=0b7e3e4a-6a3d-4a53-8f3c-0000000000aa"
	credentialOfB = "JTI=0b7e3e4a-6a3d-4a53-8f3c-0000000000bb"
	unlisted      = "JTI=0b7e3e4a-6a3d-4a53-8f3c-0000000000cc"

	collector = "system:serviceaccount:kube-system:generic-garbage-collector"
	migrator  = "system:serviceaccount:kube-system:storage-version-migrator-controller"
	shared    = "system:kube-controller-manager"
	worker    = "system:serviceaccount:reports:report-writer"
)

func held() fence.Lease {
	return fence.Lease{Namespace: "reports", Name: "report-writer", Generation: 34, Term: termB, Holder: "report-b"}
}

func leaseWith(edit func(*fence.Lease)) fence.Lease {
	l := held()
	edit(&l)
	return l
}

func leaseOfA() fence.Lease {
	return leaseWith(func(l *fence.Lease) { l.Generation, l.Term, l.Holder = 33, termA, "report-a" })
}

// sealed is the lease in a term that began with a seal and ends with one; its holder may write.
func sealed() fence.Lease {
	return listing(leaseWith(func(l *fence.Lease) {
		l.Handover, l.Seal, l.SealedGeneration = v1alpha1.HandoverSeal, v1alpha1.SealRequired, l.Generation
	}))
}

// unsealed is the lease in a term that is still to be sealed.
func unsealed() fence.Lease { return sealedWith(func(l *fence.Lease) { l.SealedGeneration = 33 }) }

func released() fence.Lease  { return leaseWith(func(l *fence.Lease) { l.Holder = "" }) }
func gone() fence.Lease      { return leaseWith(func(l *fence.Lease) { l.Gone = true }) }
func inAudit() fence.Lease   { return leaseWith(func(l *fence.Lease) { l.Audit = true }) }
func neverHeld() fence.Lease { return fence.Lease{Namespace: "reports", Name: "report-writer"} }

// listing is a lease that lists the credentials of both leaders.
func listing(l fence.Lease) fence.Lease {
	l.Credentials = []v1alpha1.Credential{{ID: credentialOfA, Term: termA}, {ID: credentialOfB, Term: termB}}
	return l
}

// fresh is the view after a linearizable read, by a guard that asks the writer for a token.
func fresh(l fence.Lease) fence.View {
	return fence.View{Lease: l, Origin: fence.Linearizable, MustPresent: true}
}

// freshForOthers is the view after a linearizable read, by a guard whose subjects leave the writer out.
func freshForOthers(l fence.Lease) fence.View {
	return fence.View{Lease: l, Origin: fence.Linearizable}
}

func cached(l fence.Lease) fence.View { return fence.View{Lease: l, Origin: fence.Cached} }

// covered is the view of a cached lease by a guard that makes a seal move every object's mark.
func covered(l fence.Lease) fence.View {
	return fence.View{Lease: l, Origin: fence.Cached, SealCovers: true}
}

// marked is an object with a mark; the empty text stands for none.
func marked(mark string) *fence.Object {
	o := &fence.Object{Annotations: map[string]string{"team": "reports"}}
	if mark != "" {
		o.Annotations[tokenKey] = mark
	}
	return o
}

func terminating(mark string, finalizers int) *fence.Object {
	o := marked(mark)
	o.Terminating, o.Finalizers = true, finalizers
	return o
}

// recording is an object that records operations.
func recording(mark, records string) *fence.Object {
	return annotated(marked(mark), operationsKey, records)
}

func annotated(o *fence.Object, key, value string) *fence.Object {
	o.Annotations[key] = value
	return o
}

type edit func(*fence.Write)

func write(operation fence.Operation, subresource string, before, after *fence.Object, edits ...edit) fence.Write {
	w := fence.Write{
		Operation: operation, Subresource: subresource, Old: before, New: after,
		Writer: fence.Writer{Username: worker}, Change: fence.ChangeOther, System: fence.DefaultSystemWriters(),
	}
	for _, e := range edits {
		e(&w)
	}
	return w
}

func create(after *fence.Object, edits ...edit) fence.Write {
	return write(fence.Create, fence.SubresourceMain, nil, after, edits...)
}

func update(before, after *fence.Object, edits ...edit) fence.Write {
	return write(fence.Update, fence.SubresourceMain, before, after, edits...)
}

func status(before, after *fence.Object, edits ...edit) fence.Write {
	return write(fence.Update, fence.SubresourceStatus, before, after, edits...)
}

// scale is a write to the scale subresource: the handler shows the stored object as both states.
func scale(stored *fence.Object, edits ...edit) fence.Write {
	return write(fence.Update, fence.SubresourceScale, stored, stored, edits...)
}

func remove(before *fence.Object, edits ...edit) fence.Write {
	return write(fence.Delete, fence.SubresourceMain, before, nil, edits...)
}

// carrying presents tokens with the request; the policy that stamps has not run.
func carrying(values ...string) edit { return extra(tokenKey, values...) }

// using makes the request with a credential.
func using(ids ...string) edit { return extra(credentialKey, ids...) }

func extra(key string, values ...string) edit {
	return func(w *fence.Write) {
		w.Writer.Extra = maps.Clone(w.Writer.Extra)
		if w.Writer.Extra == nil {
			w.Writer.Extra = map[string][]string{}
		}
		w.Writer.Extra[key] = values
	}
}

func by(username string, change fence.Change) edit {
	return func(w *fence.Write) { w.Writer.Username, w.Change = username, change }
}

func overriding(permitted bool) edit {
	return func(w *fence.Write) { w.Override = fence.Override{Reason: "incident 4711", Permitted: permitted} }
}

// essence is what a verdict says, without its explanation.
type essence struct {
	Outcome fence.Outcome
	Reason  fence.Reason
	Audited bool
}

func essenceOf(v fence.Verdict) essence { return essence{v.Outcome, v.Reason, v.Audited} }

func allow(r fence.Reason) essence { return essence{Outcome: fence.Allow, Reason: r} }
func deny(r fence.Reason) essence  { return essence{Outcome: fence.Deny, Reason: r} }
func audit(r fence.Reason) essence { return essence{Outcome: fence.Deny, Reason: r, Audited: true} }
func unavailable(r fence.Reason) essence {
	return essence{Outcome: fence.Unavailable, Reason: r}
}

var needsRead = essence{Outcome: fence.NeedsRead, Reason: fence.NotFresh}

// row is one line of a table that is keyed by a sentence.
type row struct {
	write fence.Write
	view  fence.View
	want  essence
}

func checkRows(t *testing.T, rows map[string]row) {
	t.Helper()
	for name, tc := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := fence.Decide(tc.write, tc.view)
			if diff := cmp.Diff(tc.want, essenceOf(got)); diff != "" {
				t.Errorf("verdict (-want +got):\n%s\nmessage: %s", diff, got.Message)
			}
			if diff := cmp.Diff(reference(tc.write, tc.view), essenceOf(got)); diff != "" {
				t.Errorf("verdict (-reference +got):\n%s", diff)
			}
			if problem := notTotal(got); problem != "" {
				t.Error(problem)
			}
		})
	}
}

// notTotal says what keeps a verdict from being a complete answer, or nothing.
func notTotal(v fence.Verdict) string {
	closed := map[fence.Outcome][]fence.Reason{
		fence.Allow:       fence.AllowReasons(),
		fence.Deny:        fence.DenyReasons(),
		fence.NeedsRead:   {fence.NotFresh},
		fence.Unavailable: fence.UnavailableReasons(),
	}
	reasons, known := closed[v.Outcome]
	explains := v.Outcome == fence.Deny || v.Outcome == fence.Unavailable
	switch {
	case !known:
		return "outcome " + string(v.Outcome) + " is none of the four"
	case !slices.Contains(reasons, v.Reason):
		return "reason " + string(v.Reason) + " is not one of " + string(v.Outcome)
	case explains != (v.Message != ""):
		return string(v.Outcome) + " with the message " + v.Message
	case v.Audited && v.Outcome != fence.Deny:
		return string(v.Outcome) + " is audited"
	case (v.Reason == fence.AlreadyApplied) && v.Recorded.Operation != v.Presented.Operation:
		return "repeats " + v.Presented.String() + " with the record " + v.Recorded.String()
	case v.Recorded.Operation != "" && v.Reason != fence.AlreadyApplied && v.Reason != fence.MissingToken:
		return string(v.Reason) + " with the record " + v.Recorded.String()
	case v.Admits() != (v.Outcome == fence.Allow || v.Audited):
		return "Admits disagrees with the outcome"
	case v.Carrier == fence.CarrierNone && !v.Presented.IsZero():
		return "a token without a carrier"
	case v.Carrier != fence.CarrierNone && v.Presented.IsZero() &&
		(v.Carrier != fence.CarrierCredential || v.Outcome == fence.Allow || v.Outcome == fence.Deny && v.Reason != fence.StaleToken):
		// The generation of a credential's ended term is not known, and that it has ended is all there is to say.
		return "a carrier without a token"
	default:
		return ""
	}
}
