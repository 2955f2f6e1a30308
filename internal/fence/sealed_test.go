// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// sealedWith is the lease of a sealed term, edited.
func sealedWith(edit func(*fence.Lease)) fence.Lease {
	l := sealed()
	edit(&l)
	return l
}

// Each condition of the path without a read has a row that fails if the condition is taken out.
func TestAWriteUnderASealedTermNeedsNoRead(t *testing.T) {
	t.Parallel()
	const mark, now, older, newer = "34.bbbbbbbb", "34.bbbbbbbb/2", "33.aaaaaaaa", "35.cccccccc"
	finallyDeleted := func(mark string) *fence.Object { return terminating(mark, 0) }
	checkRows(t, map[string]row{
		"update by a changed annotation": {
			update(marked(mark), marked(now)), covered(sealed()), allow(fence.SealedTerm)},
		"update by the request's token, stamped": {
			update(marked(mark), marked(now), carrying(now)), covered(sealed()), allow(fence.SealedTerm)},
		"update by the request's token that is as stored": {
			update(marked(mark), marked(mark), carrying(mark)), covered(sealed()), allow(fence.SealedTerm)},
		"update by a term credential, stamped": {
			update(marked("34.bbbbbbbb/7"), marked(mark), using(credentialOfB)), covered(sealed()), allow(fence.SealedTerm)},
		"update by a term credential of an object that the seal has stamped": {
			update(marked(mark), marked(mark), using(credentialOfB)), covered(sealed()), allow(fence.SealedTerm)},
		"status by a changed annotation": {
			status(marked(mark), marked(now)), covered(sealed()), allow(fence.SealedTerm)},
		"status by the request's token": {
			status(marked(mark), marked(mark), carrying(now)), covered(sealed()), allow(fence.SealedTerm)},
		"status by a term credential": {
			status(marked(mark), marked(mark), using(credentialOfB)), covered(sealed()), allow(fence.SealedTerm)},
		"by a credential that the lease does not list, beside a token": {
			update(marked(mark), marked(now), using(unlisted)), covered(sealed()), allow(fence.SealedTerm)},
		"of a terminating object that keeps a finalizer": {
			update(terminating(mark, 2), terminating(now, 1)), covered(sealed()), allow(fence.SealedTerm)},
		"of an object whose mark asks for its deletion": {
			update(marked("34.bbbbbbbb/delete"), marked(now)), covered(sealed()), allow(fence.SealedTerm)},

		"not by a guard with a selector, or one that leaves the main resource out": {
			update(marked(mark), marked(now)), cached(sealed()), needsRead},
		"not in a lazy term, after which another may begin without a seal": {
			update(marked(mark), marked(now)), covered(sealedWith(func(l *fence.Lease) { l.Handover = v1alpha1.HandoverLazy })), needsRead},
		"not in a term without a strategy": {
			update(marked(mark), marked(now)), covered(sealedWith(func(l *fence.Lease) { l.Handover = "" })), needsRead},
		"not before the term is sealed": {
			update(marked(mark), marked(now)), covered(sealedWith(func(l *fence.Lease) { l.SealedGeneration = 33 })), needsRead},
		"not after the release": {
			update(marked(mark), marked(now)), covered(sealedWith(func(l *fence.Lease) { l.Holder = "" })), needsRead},
		"not in Audit, where marks are not protected": {
			update(marked(mark), marked(now)), covered(sealedWith(func(l *fence.Lease) { l.Audit = true })), needsRead},
		"not by a lease that is gone, which no copy says": {
			update(marked(mark), marked(now)), covered(sealedWith(func(l *fence.Lease) { l.Gone = true })), needsRead},
		"not of an object without a mark: a late create, or one that came to exist unfenced": {
			update(marked(""), marked(now)), covered(sealed()), needsRead},
		"not of an object with an older mark": {
			update(marked(older), marked(now)), covered(sealed()), needsRead},
		"not of an object with a mark of another history": {
			update(marked("34.zzzzzzzz"), marked(now)), covered(sealed()), needsRead},
		"not of an object whose mark names no term": {
			update(marked("34"), marked(now)), covered(sealed()), needsRead},
		"not of an object whose mark is no token": {
			update(marked("leader"), marked(now)), covered(sealed()), needsRead},
		"not by a token without a term": {
			update(marked(mark), marked("34/2")), covered(sealed()), needsRead},
		"not by a token of another history": {
			update(marked(mark), marked("34.zzzzzzzz/2")), covered(sealed()), needsRead},
		"not by a token above the lease's, also if the mark shows it, too": {
			update(marked(newer), marked("35.cccccccc/2")), covered(sealed()), needsRead},
		"not by an inherited annotation, which presents nothing": {
			update(marked(mark), marked(mark)), covered(sealed()), needsRead},
		"not by the request's token that was not stamped": {
			update(marked(mark), marked(mark), carrying(now)), covered(sealed()), needsRead},
		"not by a term credential whose stamp is missing": {
			update(marked("34.bbbbbbbb/7"), marked("34.bbbbbbbb/7"), using(credentialOfB)), covered(sealed()), needsRead},
		"not by a token beside the credential of an ended term": {
			update(marked(mark), marked(now), using(credentialOfA)), covered(sealed()), needsRead},
		"not by an override": {
			update(marked(mark), marked(mark), overriding(true)), covered(sealed()), needsRead},
		"not a create, which has no old object": {
			create(marked(now)), covered(sealed()), needsRead},
		"not a delete": {
			remove(marked(mark), carrying(now)), covered(sealed()), needsRead},
		"not a delete that the mark asks for": {
			remove(marked("34.bbbbbbbb/delete")), covered(sealed()), needsRead},
		"not a scale write": {
			scale(marked(mark), carrying(now)), covered(sealed()), needsRead},
		"not a final delete, which is not conditioned on the mark": {
			update(terminating(mark, 1), finallyDeleted(now)), covered(sealed()), needsRead},
		"not a status write that deletes finally": {
			status(finallyDeleted(mark), finallyDeleted(now)), covered(sealed()), needsRead},

		"what is refused by a cached lease is refused here as well: a stale token": {
			update(marked(mark), marked("33.aaaaaaaa/2")), covered(sealed()), deny(fence.StaleToken)},
		"what is refused by a cached lease is refused here as well: a mark that the next seal has moved": {
			update(marked(newer), marked(now)), covered(sealed()), deny(fence.StaleToken)},
		"what is refused by a cached lease is refused here as well: a mark removed": {
			update(marked(mark), marked("")), covered(sealed()), deny(fence.MarkTampered)},
		"what is refused by a cached lease is refused here as well: a credential of an ended term": {
			update(marked(mark), marked(mark), using(credentialOfA)), covered(sealed()), deny(fence.StaleToken)},
		"with a read the reason is that of a read": {
			update(marked(mark), marked(now)), fence.View{Lease: sealed(), Origin: fence.Linearizable, MustPresent: true, SealCovers: true},
			allow(fence.CurrentToken)},
	})
}

func TestWhatASealCovers(t *testing.T) {
	t.Parallel()
	reports := schema.GroupResource{Group: "example.com", Resource: "reports"}
	guard := func(edits ...func(*v1alpha1.Guard)) v1alpha1.Guard {
		g := v1alpha1.Guard{APIGroups: []string{"example.com"}, Resources: []string{"reports/*"}}
		for _, e := range edits {
			e(&g)
		}
		return g
	}
	resources := func(names ...string) func(*v1alpha1.Guard) { return func(g *v1alpha1.Guard) { g.Resources = names } }
	labelled := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "reports"}}
	existing := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}
	type want struct{ main, status bool }
	for name, test := range map[string]struct {
		guards []v1alpha1.Guard
		want   want
	}{
		"a guard on all subresources":                {[]v1alpha1.Guard{guard()}, want{true, true}},
		"a guard that names both":                    {[]v1alpha1.Guard{guard(resources("reports", "reports/status"))}, want{true, true}},
		"a guard on the main resource only":          {[]v1alpha1.Guard{guard(resources("reports"))}, want{true, false}},
		"a guard on the status only leaves the mark": {[]v1alpha1.Guard{guard(resources("reports/status"))}, want{false, false}},
		"two guards, each on one of them": {
			[]v1alpha1.Guard{guard(resources("reports/status")), guard(resources("reports"))}, want{true, false}},
		"a guard on something else": {[]v1alpha1.Guard{guard(resources("exports/*"))}, want{false, false}},
		"a guard on another group": {
			[]v1alpha1.Guard{guard(func(g *v1alpha1.Guard) { g.APIGroups = []string{"example.org"} })}, want{false, false}},
		"an empty objectSelector is none": {
			[]v1alpha1.Guard{guard(func(g *v1alpha1.Guard) { g.ObjectSelector = &metav1.LabelSelector{} })}, want{true, true}},
		"a selector by labels": {
			[]v1alpha1.Guard{guard(func(g *v1alpha1.Guard) { g.ObjectSelector = labelled })}, want{false, false}},
		"a selector by expressions": {
			[]v1alpha1.Guard{guard(func(g *v1alpha1.Guard) { g.ObjectSelector = existing })}, want{false, false}},
		"a namespaceSelector, also one for all": {
			[]v1alpha1.Guard{guard(func(g *v1alpha1.Guard) { g.NamespaceSelector = &metav1.LabelSelector{} })}, want{false, false}},
		"a guard with subjects: whom it leaves out moves no mark": {
			[]v1alpha1.Guard{guard(func(g *v1alpha1.Guard) {
				g.Subjects = []v1alpha1.Subject{{Kind: v1alpha1.SubjectGroup, Name: "workers"}}
			})}, want{true, true}},
		"one with a selector beside one without": {
			[]v1alpha1.Guard{guard(func(g *v1alpha1.Guard) { g.ObjectSelector = labelled }), guard()}, want{true, true}},
		"no guard": {nil, want{false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := want{fence.SealCovers(test.guards, reports, ""), fence.SealCovers(test.guards, reports, "status")}
			if got != test.want {
				t.Errorf("want %+v, got %+v", test.want, got)
			}
		})
	}
}

// What is admitted without a read is what a read of the same lease would have admitted, and only where the commit is
// conditioned on a mark that the next seal moves.
func TestPropertyTheSealedPathIsNarrow(t *testing.T) {
	t.Parallel()
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		w, v := generatedWrite().Draw(t, "write"), generatedView().Draw(t, "view")
		if rapid.Bool().Draw(t, "aimed at the path") {
			w, v = nearlySealed(t)
		}
		got := fence.Decide(w, v)
		if got.Reason != fence.SealedTerm {
			return
		}
		taken++
		if v.Origin != fence.Cached {
			t.Fatal("a read was made, and not used")
		}
		byRead := v
		byRead.Origin, byRead.MustPresent = fence.Linearizable, true
		if want := fence.Decide(w, byRead); want.Reason != fence.CurrentToken {
			t.Fatalf("a read of the same lease says %s %s", want.Outcome, want.Reason)
		}
		mark, had := markOf(w.Old)
		after, has := markOf(storedAfter(w))
		if !had || !has || mark.Possession() != after.Possession() || mark.Possession() != got.Presented.Possession() {
			t.Fatalf("the mark %s becomes %s by the token %s", mark, after, got.Presented)
		}

		// The next seal has come to the object: whatever else the write shows, and however old the lease is, it is not
		// admitted by it any more.
		for _, moved := range []string{"35.cccccccc", "34.zzzzzzzz", "35", "999999999999999"} {
			later := w
			later.Old = cloneObject(w.Old)
			later.Old.Annotations[tokenKey] = moved
			for _, inherited := range []bool{false, true} {
				if later.New = cloneObject(w.New); inherited {
					later.New.Annotations = maps.Clone(later.New.Annotations)
					later.New.Annotations[tokenKey] = moved
				}
				if got := fence.Decide(later, v); got.Admits() {
					t.Fatalf("with the mark %s: %s %s", moved, got.Outcome, got.Reason)
				}
			}
		}
	})
	if taken == 0 {
		t.Error("the path was never taken")
	}
}

// nearlySealed draws a write that may pass without a read, or misses it by a condition or two.
func nearlySealed(t *rapid.T) (fence.Write, fence.View) {
	v := covered(sealed())
	before, after := marked(termB), marked(termB)
	before.Annotations[tokenKey] = rapid.SampledFrom([]string{"34.bbbbbbbb", "34.bbbbbbbb/1", "34.bbbbbbbb/delete", "34", "33.aaaaaaaa"}).Draw(t, "mark")
	text := rapid.SampledFrom([]string{"34.bbbbbbbb", "34.bbbbbbbb/2", "34.bbbbbbbb/delete", "34/2"}).Draw(t, "token")
	after.Annotations[tokenKey] = text
	before.Finalizers, after.Finalizers = rapid.IntRange(0, 1).Draw(t, "finalizers"), rapid.IntRange(0, 1).Draw(t, "finalizers left")
	before.Terminating = rapid.IntRange(0, 3).Draw(t, "terminating") == 0
	after.Terminating = before.Terminating
	w := update(before, after)
	switch rapid.SampledFrom([]string{"main", "main", "status", "scale", "create", "delete"}).Draw(t, "kind") {
	case "status":
		w.Subresource = fence.SubresourceStatus
	case "scale":
		w.Subresource = fence.SubresourceScale
	case "create":
		w.Operation, w.Old = fence.Create, nil
	case "delete":
		w.Operation, w.New = fence.Delete, nil
	}
	switch rapid.SampledFrom([]string{"annotation", "request", "not stamped", "credential"}).Draw(t, "carrier") {
	case "request":
		carrying(text)(&w)
	case "not stamped":
		carrying("34.bbbbbbbb/3")(&w)
	case "credential":
		using(rapid.SampledFrom([]string{credentialOfA, credentialOfB, unlisted}).Draw(t, "credential"))(&w)
	}
	switch rapid.SampledFrom([]string{"", "", "", "lazy", "unsealed", "released", "audit", "not covered", "read"}).Draw(t, "view") {
	case "lazy":
		v.Lease.Handover = v1alpha1.HandoverLazy
	case "unsealed":
		v.Lease.SealedGeneration--
	case "released":
		v.Lease.Holder = ""
	case "audit":
		v.Lease.Audit = true
	case "not covered":
		v.SealCovers = false
	case "read":
		v.Origin = fence.Linearizable
	}
	return w, v
}

// LeaseOf must show a term as it is, for a lease that was never held as well.
func TestLeaseOfShowsTheSeal(t *testing.T) {
	t.Parallel()
	lease := &v1alpha1.FencedLease{}
	lease.Namespace, lease.Name = "reports", "report-writer"
	generation, term, holder := int64(34), termB, "report-b"
	lease.Status = v1alpha1.FencedLeaseStatus{
		Generation: &generation, Term: &term, HolderIdentity: &holder, SealedGeneration: &generation, Handover: v1alpha1.HandoverSeal,
	}
	want := leaseWith(func(l *fence.Lease) { l.Handover, l.SealedGeneration = v1alpha1.HandoverSeal, 34 })
	if diff := cmp.Diff(want, fence.LeaseOf(lease)); diff != "" {
		t.Errorf("lease (-want +got):\n%s", diff)
	}
	if got := fence.LeaseOf(&v1alpha1.FencedLease{}); got.SealedGeneration != 0 || got.Token() != (token.Token{}) {
		t.Errorf("a lease that was never held shows %+v", got)
	}
}

// The store was restored under a replica whose copy is ahead of it, and numbers of the undone history are handed out again.
// Terms tell the histories apart: neither the undone holder nor the copy that knows only it lets a write past the new marks.
func TestARestoredStoreUnderACopyThatIsAhead(t *testing.T) {
	t.Parallel()
	// In the undone history Z held 35, sealed. The store went back to B's 34; then C took 35.
	const termZ, termC = "zzzzzzzz", "cccccccc"
	undone := sealedWith(func(l *fence.Lease) {
		l.Generation, l.Term, l.Holder, l.SealedGeneration = 35, termZ, "report-z", 35
	})
	now := sealedWith(func(l *fence.Lease) { l.Generation, l.Term, l.Holder, l.SealedGeneration = 35, termC, "report-c", 35 })
	const byZ, byB, byC = "35." + termZ + "/2", "34." + termB + "/2", "35." + termC + "/2"
	checkRows(t, map[string]row{
		"the undone holder writes what C has sealed: read":          {update(marked("35."+termC), marked(byZ)), covered(undone), needsRead},
		"the undone holder writes what C has sealed: refused":       {update(marked("35."+termC), marked(byZ)), fresh(now), deny(fence.ForkedTerm)},
		"the undone holder writes what the store has of B: read":    {update(marked("34."+termB), marked(byZ)), covered(undone), needsRead},
		"B writes, before C's seal has come: the copy is ahead":     {update(marked("34."+termB), marked(byB)), covered(undone), deny(fence.StaleToken)},
		"B writes what C has sealed":                                {update(marked("35."+termC), marked(byB)), covered(undone), deny(fence.StaleToken)},
		"C writes what it has sealed, by the copy that is ahead":    {update(marked("35."+termC), marked(byC)), covered(undone), needsRead},
		"C writes what it has sealed, by a read":                    {update(marked("35."+termC), marked(byC)), fresh(now), allow(fence.CurrentToken)},
		"C writes what it has sealed, by a copy that has caught up": {update(marked("35."+termC), marked(byC)), covered(now), allow(fence.SealedTerm)},
	})
}
