// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
)

// Bits of a fuzzed write and view.
const (
	hasOld = 1 << iota
	hasNew
	oldMarked
	newMarked
	oldTerminating
	oldFinalizers
	newFinalizers
	oneValue
	twoValues
	isFresh
	mustPresent
	isAudit
	isGone
	overrideAsked
	overridePermitted
	looksUnchanged
	usesCredential
	isListed
	isListedForTerm
)

func FuzzDecide(f *testing.F) {
	const current, next = "34.bbbbbbbb/1", "34.bbbbbbbb/2"
	const both = hasOld | hasNew | oldMarked | newMarked
	f.Add("UPDATE", "", worker, current, next, "", "", int64(34), termB, "report-b", uint32(both|isFresh|mustPresent))
	f.Add("UPDATE", "", worker, current, current, "", "", int64(34), termB, "report-b", uint32(both|isFresh|mustPresent))
	f.Add("UPDATE", "status", worker, current, "33.aaaaaaaa/2", "", "", int64(34), termB, "report-b", uint32(both))
	f.Add("UPDATE", "scale", worker, current, current, next, "", int64(34), termB, "", uint32(both|oneValue|isFresh))
	f.Add("UPDATE", "", collector, current, current, "", "", int64(34), termB, "report-b", uint32(both|oldTerminating|oldFinalizers|isFresh))
	f.Add("CREATE", "", worker, "", "34", "34", "", int64(34), termB, "report-b", uint32(hasNew|newMarked|oneValue|isFresh))
	f.Add("DELETE", "", worker, "34/delete", "", "", "", int64(34), termB, "report-b", uint32(hasOld|oldMarked|isFresh|mustPresent))
	f.Add("DELETE", "", migrator, "2000000000000000", "", next, next, int64(34), termB, "", uint32(hasOld|oldMarked|twoValues|isFresh|isAudit))
	f.Add("CONNECT", "proxy", "", "\xff", "\x00", "034", " 34", int64(-1), "", "世", uint32(1<<19-1))

	const listed = usesCredential | isListed | isListedForTerm
	f.Add("UPDATE", "", worker, current, "34.bbbbbbbb", "", credentialOfB, int64(34), termB, "report-b", uint32(both|isFresh|listed))
	f.Add("UPDATE", "", worker, current, current, "", credentialOfB, int64(34), termB, "report-b", uint32(both|isFresh|listed))
	f.Add("UPDATE", "status", worker, current, next, "", credentialOfB, int64(34), termB, "report-b", uint32(both|isFresh|listed))
	f.Add("DELETE", "", worker, current, "", "33.aaaaaaaa", credentialOfB, int64(34), termB, "report-b", uint32(hasOld|oldMarked|oneValue|isFresh|listed))
	f.Add("DELETE", "", worker, current, "", "", termA, int64(34), termB, "", uint32(hasOld|oldMarked|usesCredential|isListed))
	f.Add("CREATE", "", worker, "", "34.", "", credentialOfB, int64(0), "", "", uint32(hasNew|newMarked|isFresh|listed))

	f.Fuzz(func(t *testing.T, operation, subresource, user, oldText, newText, value, second string,
		generation int64, term, holder string, bits uint32) {
		on := func(bit uint32) bool { return bits&bit != 0 }
		w := fence.Write{
			Operation: fence.Operation(operation), Subresource: subresource,
			Writer: fence.Writer{Username: user}, System: fence.DefaultSystemWriters(),
			Override: fence.Override{Permitted: on(overridePermitted)},
		}
		if on(overrideAsked) {
			w.Override.Reason = second
		}
		if on(looksUnchanged) {
			w.Change = fence.ChangeNothing
		}
		object := func(text string, marked, finalizers bool) *fence.Object {
			o := &fence.Object{Terminating: on(oldTerminating)}
			if marked {
				o.Annotations = map[string]string{tokenKey: text}
			}
			if finalizers {
				o.Finalizers = 1
			}
			return o
		}
		if on(hasOld) {
			w.Old = object(oldText, on(oldMarked), on(oldFinalizers))
		}
		if on(hasNew) {
			w.New = object(newText, on(newMarked), on(newFinalizers))
		}
		if on(oneValue) {
			w.Writer.Extra = map[string][]string{tokenKey: {value}}
		}
		if on(twoValues) {
			w.Writer.Extra = map[string][]string{tokenKey: {value, second}}
		}
		v := fence.View{MustPresent: on(mustPresent), Lease: fence.Lease{
			Namespace: "reports", Name: "report-writer", Generation: generation, Term: term, Holder: holder,
			Audit: on(isAudit), Gone: on(isGone),
		}}
		if on(isFresh) {
			v.Origin = fence.Linearizable
		}
		// The second text stands for the id of the credential, and for the term that it is listed for.
		if on(usesCredential) {
			using("JTI=" + second)(&w)
		}
		if on(isListed) {
			v.Lease.Credentials = []v1alpha1.Credential{{ID: "JTI=" + second, Term: second}}
		}
		if on(isListedForTerm) {
			v.Lease.Credentials = []v1alpha1.Credential{{ID: "JTI=" + second, Term: term}}
		}
		stamp, needed := fence.StampFor(w, v.Lease)
		if needed == stamp.IsZero() {
			t.Fatalf("stamp %s, needed %v", stamp, needed)
		}

		got := fence.Decide(w, v)
		if problem := notTotal(got); problem != "" {
			t.Fatal(problem)
		}
		if want := reference(w, v); want != essenceOf(got) {
			t.Fatalf("want %+v, got %+v: %s", want, essenceOf(got), got.Message)
		}
		// Terms and holders come from the schema, which bounds them; what a client sends does not.
		if on(isListed) && len(second) > 64 {
			return
		}
		if len(term) <= 8 && len(holder) <= 253 && strings.ToValidUTF8(term, "") == term && printable(term) && got.Message != "" {
			checkMessage(t, got.Message, longestMessage)
		}
	})
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) })
}

// policyMark is how the mark policy, in the API server, reads a mark.
var policyMark = regexp.MustCompile(`^([1-9][0-9]{0,17})([.][a-z0-9]{8})?(/[-_.:A-Za-z0-9]{1,128})?$`)

// What the decision accepts, the mark policy accepts too: the two never bar each other's way. Neither takes a stored text
// that is no token for a mark.
func FuzzTheMarkPolicyAgrees(f *testing.F) {
	for _, seed := range [][3]string{
		{"33.aaaaaaaa/1", "34.bbbbbbbb/1", ""}, {"34", "34/1", ""}, {"34", "034", ""}, {"34.bbbbbbbb/1", "", "34.bbbbbbbb/2"},
		{"1000000000000001", "34", "34"}, {"34", "34x", ""}, {"9", "10", "10"},
	} {
		f.Add(seed[0], seed[1], seed[2], true, true)
	}
	f.Fuzz(func(t *testing.T, mark, text, value string, annotates, asks bool) {
		w := update(annotated(marked(""), tokenKey, mark), marked(""))
		if annotates {
			w.New.Annotations[tokenKey] = text
		}
		if value != "" {
			w.Writer.Extra = map[string][]string{tokenKey: {value}}
		}
		before, had := markOf(w.Old)
		got := fence.Decide(w, fence.View{Lease: held(), Origin: fence.Linearizable, MustPresent: asks})
		if !had || !got.Admits() {
			return
		}
		groups := policyMark.FindStringSubmatch(w.New.Annotations[tokenKey])
		if groups == nil {
			t.Fatalf("%s admits the mark %q, which the policy refuses", got.Reason, w.New.Annotations[tokenKey])
		}
		if after, err := strconv.ParseInt(groups[1], 10, 64); err != nil || after < before.Generation {
			t.Fatalf("%s admits that the mark falls from %s to %q: %v", got.Reason, before, w.New.Annotations[tokenKey], err)
		}
	})
}
