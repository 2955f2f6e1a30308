// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// Few generations, terms and operations, so that equal ones meet; and texts that are no tokens.
func generatedText() *rapid.Generator[string] {
	wellFormed := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"1", "32", "33", "34", "35", "36", "1000000000000001", "999999999999999999"}).Draw(t, "generation") +
			rapid.SampledFrom([]string{"", ".aaaaaaaa", ".bbbbbbbb", ".zzzzzzzz"}).Draw(t, "term") +
			rapid.SampledFrom([]string{"", "/1", "/2", "/delete"}).Draw(t, "operation")
	})
	return rapid.OneOf(wellFormed, wellFormed, wellFormed, wellFormed,
		rapid.SampledFrom([]string{"", "0", "034", "leader", "34.", "34/", "34.short", "-34", " 34", "34.bbbbbbbb/a b"}), rapid.String())
}

func generatedLease() *rapid.Generator[fence.Lease] {
	return rapid.Custom(func(t *rapid.T) fence.Lease {
		l := fence.Lease{Namespace: "reports", Name: "report-writer"}
		l.Generation = rapid.SampledFrom([]int64{0, 32, 33, 34, 35}).Draw(t, "lease generation")
		if l.Generation > 0 {
			l.Term = rapid.SampledFrom([]string{termA, termB, "zzzzzzzz"}).Draw(t, "lease term")
			l.Holder = rapid.SampledFrom([]string{"", "report-a", "report-b"}).Draw(t, "holder")
			l.Handover = rapid.SampledFrom([]v1alpha1.Handover{v1alpha1.HandoverSeal, v1alpha1.HandoverSeal, v1alpha1.HandoverLazy}).Draw(t, "handover")
			l.SealedGeneration = max(0, l.Generation-rapid.SampledFrom([]int64{0, 0, 0, 1}).Draw(t, "generations since the last seal"))
		}
		for _, id := range []string{credentialOfA, credentialOfB} {
			if rapid.Bool().Draw(t, "listed") {
				term := rapid.SampledFrom([]string{termA, termB, "zzzzzzzz", l.Term}).Draw(t, "credential's term")
				l.Credentials = append(l.Credentials, v1alpha1.Credential{ID: id, Term: term})
			}
		}
		l.Audit = rapid.IntRange(0, 4).Draw(t, "audit") == 0
		l.Gone = rapid.IntRange(0, 9).Draw(t, "gone") == 0
		return l
	})
}

func generatedView() *rapid.Generator[fence.View] {
	return rapid.Custom(func(t *rapid.T) fence.View {
		return fence.View{
			Lease:       generatedLease().Draw(t, "lease"),
			Origin:      rapid.SampledFrom([]fence.Origin{fence.Cached, fence.Linearizable}).Draw(t, "origin"),
			MustPresent: rapid.Bool().Draw(t, "must present"),
			SealCovers:  rapid.IntRange(0, 3).Draw(t, "seal covers") > 0,
		}
	})
}

func generatedObject() *rapid.Generator[*fence.Object] {
	return rapid.Custom(func(t *rapid.T) *fence.Object {
		o := &fence.Object{Terminating: rapid.Bool().Draw(t, "terminating"), Finalizers: rapid.IntRange(0, 2).Draw(t, "finalizers")}
		if rapid.IntRange(0, 9).Draw(t, "annotated") > 0 {
			o.Annotations = map[string]string{"team": "reports"}
			if rapid.IntRange(0, 3).Draw(t, "marked") > 0 {
				o.Annotations[tokenKey] = generatedText().Draw(t, "annotation")
			}
		}
		return o
	})
}

// generatedWrite draws writes of every kind that a guard asks for. The change is drawn without regard to the objects:
// whoever compares them wrongly must not open the fence.
func generatedWrite() *rapid.Generator[fence.Write] {
	users := []string{worker, "jane", collector, migrator, shared, ""}
	return rapid.Custom(func(t *rapid.T) fence.Write {
		w := fence.Write{
			Writer: fence.Writer{Username: rapid.SampledFrom(users).Draw(t, "user")},
			Change: rapid.SampledFrom([]fence.Change{fence.ChangeOther, fence.ChangeOwnership, fence.ChangeNothing}).Draw(t, "change"),
			System: fence.DefaultSystemWriters(),
			Override: fence.Override{
				Reason: rapid.SampledFrom([]string{"", "incident 4711"}).Draw(t, "reason"), Permitted: rapid.Bool().Draw(t, "permitted"),
			},
		}
		switch rapid.SampledFrom([]string{"create", "update", "update", "status", "scale", "delete"}).Draw(t, "kind") {
		case "create":
			w.Operation, w.New = fence.Create, generatedObject().Draw(t, "new")
		case "update":
			w.Operation = fence.Update
			w.Old, w.New = generatedObject().Draw(t, "old"), generatedObject().Draw(t, "new")
			inheritSometimes(t, w)
		case "status":
			w.Operation, w.Subresource = fence.Update, fence.SubresourceStatus
			w.Old, w.New = generatedObject().Draw(t, "old"), generatedObject().Draw(t, "new")
			inheritSometimes(t, w)
		case "scale":
			w.Operation, w.Subresource = fence.Update, fence.SubresourceScale
			w.Old = generatedObject().Draw(t, "old")
			w.New = w.Old
		case "delete":
			w.Operation, w.Old = fence.Delete, generatedObject().Draw(t, "old")
		}
		values := rapid.SliceOfN(generatedText(), 0, 2).Draw(t, "extra")
		if len(values) > 0 {
			w.Writer.Extra = map[string][]string{tokenKey: values}
			// What the stamping policy does, on most writes.
			if w.New != nil && w.Subresource == fence.SubresourceMain && rapid.IntRange(0, 3).Draw(t, "stamped") > 0 {
				w.New.Annotations = maps.Clone(w.New.Annotations)
				if w.New.Annotations == nil {
					w.New.Annotations = map[string]string{}
				}
				w.New.Annotations[tokenKey] = values[0]
			}
		}
		ids := rapid.SliceOfN(rapid.SampledFrom([]string{credentialOfA, credentialOfB, unlisted}), 0, 2).Draw(t, "credential")
		if len(ids) > 0 {
			using(ids...)(&w)
			// What the mutating webhook does, now and then by another lease than the one in force.
			if w.New != nil && len(values) == 0 && w.Subresource == fence.SubresourceMain && rapid.Bool().Draw(t, "stamped for the credential") {
				w.New = cloneObject(w.New)
				if w.New.Annotations == nil {
					w.New.Annotations = map[string]string{}
				}
				w.New.Annotations[tokenKey] = rapid.SampledFrom([]string{"33.aaaaaaaa", "34.bbbbbbbb", "35.zzzzzzzz"}).Draw(t, "stamp")
			}
		}
		return w
	})
}

func inheritSometimes(t *rapid.T, w fence.Write) {
	if rapid.Bool().Draw(t, "inherits") {
		w.New.Annotations = maps.Clone(w.Old.Annotations)
	}
}

// markOf is the mark of an object, and whether it has one.
func markOf(o *fence.Object) (token.Token, bool) {
	if o == nil {
		return token.Token{}, false
	}
	mark, err := token.Parse(o.Annotations[tokenKey])
	return mark, err == nil
}

// storedAfter is what the API server stores of an update: subresources keep the annotations.
func storedAfter(w fence.Write) *fence.Object {
	if w.Subresource != fence.SubresourceMain {
		return w.Old
	}
	return w.New
}

func TestPropertyEveryVerdictIsTotalAndAsTheContractSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, v := generatedWrite().Draw(t, "write"), generatedView().Draw(t, "view")
		got := fence.Decide(w, v)
		if problem := notTotal(got); problem != "" {
			t.Fatal(problem)
		}
		if want := reference(w, v); want != essenceOf(got) {
			t.Fatalf("want %+v, got %+v: %s", want, essenceOf(got), got.Message)
		}
	})
}

func TestPropertyDecideIsPure(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, v := generatedWrite().Draw(t, "write"), generatedView().Draw(t, "view")
		before := w
		before.Old, before.New = cloneObject(w.Old), cloneObject(w.New)
		before.Writer.Extra = map[string][]string{}
		for k, values := range w.Writer.Extra {
			before.Writer.Extra[k] = slices.Clone(values)
		}
		if w.Writer.Extra == nil {
			before.Writer.Extra = nil
		}
		listed := slices.Clone(v.Lease.Credentials)
		first := fence.Decide(w, v)
		fence.StampFor(w, v.Lease)
		if diff := cmp.Diff(listed, v.Lease.Credentials); diff != "" {
			t.Fatalf("the lease was changed (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(before, w); diff != "" {
			t.Fatalf("the write was changed (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(first, fence.Decide(w, v)); diff != "" {
			t.Fatalf("the same write is judged in another way (-first +second):\n%s", diff)
		}
	})
}

func cloneObject(o *fence.Object) *fence.Object {
	if o == nil {
		return nil
	}
	clone := *o
	clone.Annotations = maps.Clone(o.Annotations)
	return &clone
}

// The guarantee. An admission that Audit, or the end of the protection, did not force leaves a mark at least as high.
func TestPropertyNoAdmissionLetsAMarkFallOrVanish(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, v := generatedWrite().Draw(t, "write"), generatedView().Draw(t, "view")
		got := fence.Decide(w, v)
		before, had := markOf(w.Old)
		if w.Operation != fence.Update || !had || !got.Admits() || got.Audited || got.Reason == fence.NotGuarded {
			return
		}
		after, has := markOf(storedAfter(w))
		if !has {
			t.Fatalf("%s lets the mark %s vanish", got.Reason, before)
		}
		if token.Compare(after, before) < 0 {
			t.Fatalf("%s lets the mark fall from %s to %s", got.Reason, before, after)
		}
	})
}

func TestPropertyAnAcceptedTokenIsAtLeastTheMarkAndMovesIt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, v := generatedWrite().Draw(t, "write"), generatedView().Draw(t, "view")
		got := fence.Decide(w, v)
		if got.Reason != fence.CurrentToken {
			return
		}
		if mark, had := markOf(w.Old); had && token.Compare(got.Presented, mark) < 0 && (mark.Plausible() || w.Operation != fence.Delete) {
			t.Fatalf("%s is accepted below the mark %s", got.Presented, mark)
		}
		if got.Presented.Generation != v.Lease.Generation || got.Presented.Term != "" && got.Presented.Term != v.Lease.Term {
			t.Fatalf("%s is accepted under %s", got.Presented, v.Lease.Token())
		}
		if v.Lease.Audit || w.New == nil || w.Subresource != fence.SubresourceMain {
			return
		}
		if mark, has := markOf(w.New); !has || mark != got.Presented {
			t.Fatalf("%s is accepted and leaves the mark %s", got.Presented, mark)
		}
	})
}

// The sealed path apart, see TestPropertyTheSealedPathIsNarrow: there the mark, which the commit is conditioned on, admits
// together with the lease.
func TestPropertyACachedLeaseNeverAdmits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, v := generatedWrite().Draw(t, "write"), generatedView().Draw(t, "view")
		v.Origin = fence.Cached
		got := fence.Decide(w, v)
		if !got.Admits() {
			return
		}
		if got.Reason == fence.SealedTerm {
			return
		}
		if got.Reason != fence.SystemWriter {
			t.Fatalf("a cached lease admits: %s", got.Reason)
		}
		// That one reads no lease: any other gives the same.
		other := fence.View{Lease: generatedLease().Draw(t, "other lease"), Origin: fence.Linearizable}
		if again := fence.Decide(w, other); again.Reason != fence.SystemWriter {
			t.Fatalf("a system writer is judged by the lease: %s", again.Reason)
		}
	})
}

// later draws a state of the same lease that a legal history can reach: renewals, releases, acquisitions with a new term
// and a higher generation, and credentials that are added for the term of their time and fall out. No credential is
// added for a second term. The guards and the enforcement stay.
func later(t *rapid.T, l fence.Lease) fence.Lease {
	for i := range rapid.IntRange(0, 4).Draw(t, "steps") {
		switch rapid.SampledFrom([]string{"renew", "release", "acquire", "list", "drop"}).Draw(t, "step") {
		case "renew":
		case "list":
			l.Credentials = append(slices.Clone(l.Credentials), v1alpha1.Credential{ID: unlisted + string(rune('0'+i)), Term: l.Term})
		case "drop":
			if len(l.Credentials) > 0 {
				l.Credentials = l.Credentials[1:]
			}
		case "release":
			l.Holder = ""
		case "acquire":
			l.Generation += rapid.SampledFrom([]int64{1, 1, 1, 2, 1_000_000}).Draw(t, "step of the generation")
			l.Term = rapid.StringMatching(`[a-z0-9]{8}`).Draw(t, "new term")
			l.Holder = rapid.SampledFrom([]string{"report-a", "report-b"}).Draw(t, "new holder")
		}
	}
	return l
}

func TestPropertyADenialByACachedLeaseStandsInEveryLaterState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, v := generatedWrite().Draw(t, "write"), generatedView().Draw(t, "view")
		v.Origin, v.Lease.Gone = fence.Cached, false
		refused := fence.Decide(w, v)
		if refused.Outcome != fence.Deny {
			return
		}
		now := fence.View{
			Lease: later(t, v.Lease), Origin: fence.Linearizable, MustPresent: rapid.Bool().Draw(t, "must present later"),
		}
		// Whatever reason is found later, no later state admits.
		got := fence.Decide(w, now)
		if refused.Carrier == fence.CarrierCredential && got.Carrier == fence.CarrierNone {
			// The credential has fallen out: it presents nothing, which those pass who need not present,
			// or who ask to be let past. Never anybody else, and never as if it were current.
			switch got.Reason {
			case fence.MissingToken, fence.FinalDelete, fence.NotSubject, fence.Overridden, fence.DeleteIntent:
				return
			default:
				t.Fatalf("a credential that has fallen out: %s", got.Reason)
			}
		}
		if got.Outcome != fence.Deny || got.Audited {
			t.Fatalf("%s under %+v, %s %s under %+v", refused.Reason, v.Lease, got.Outcome, got.Reason, now.Lease)
		}
	})
}

// A lease of any later time refuses the credential of an ended term, as long as it lists it, whatever else the write
// shows.
func TestPropertyACredentialOfAnEndedTermIsNeverAdmitted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := leaseWith(func(l *fence.Lease) {
			l.Audit = rapid.Bool().Draw(t, "audit")
			l.Credentials = []v1alpha1.Credential{{ID: credentialOfB, Term: termB}}
		})
		now := later(t, start)
		if now.Generation == start.Generation && now.Holder != "" {
			return // the term goes on
		}
		w := generatedWrite().Draw(t, "write")
		using(credentialOfB)(&w)
		v := fence.View{Lease: now, Origin: fence.Linearizable, MustPresent: rapid.Bool().Draw(t, "must present")}
		state, _ := fence.CredentialOf(w.Writer, now)
		got := fence.Decide(w, v)
		switch {
		case got.Reason == fence.SystemWriter || got.Outcome == fence.Deny && got.Audited == now.Audit:
		case state == fence.CredentialUnlisted && got.Carrier != fence.CarrierCredential:
			// It has fallen out, and says nothing.
		default:
			t.Fatalf("%s %s by %q under %+v", got.Outcome, got.Reason, got.Carrier, now)
		}
	})
}

// What the mutating phase writes is exactly what the decision asks for.
func TestPropertyAStampIsWhatTheDecisionAsksFor(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, v := generatedWrite().Draw(t, "write"), generatedView().Draw(t, "view")
		v.Origin, v.Lease.Audit, v.Lease.Gone = fence.Linearizable, false, false
		before := fence.Decide(w, v)
		stamp, needed := fence.StampFor(w, v.Lease)
		if before.Reason == fence.NotStamped && before.Carrier == fence.CarrierCredential && !needed {
			t.Fatal("the decision asks for a stamp that nobody gives")
		}
		if !needed {
			return
		}
		if before.Outcome == fence.Allow && before.Reason != fence.SystemWriter {
			t.Fatalf("a stamp although the decision says %s", before.Reason)
		}
		stamped := w
		stamped.New = cloneObject(w.New)
		if stamped.New.Annotations == nil {
			stamped.New.Annotations = map[string]string{}
		}
		stamped.New.Annotations[tokenKey] = stamp.String()
		after := fence.Decide(stamped, v)
		switch {
		case after.Reason == fence.CurrentToken && after.Carrier == fence.CarrierCredential:
		case after.Reason == fence.Released && v.Lease.Holder == "":
		case before.Reason == fence.SystemWriter:
		default:
			t.Fatalf("stamped with %s: %s %s by %q: %s", stamp, after.Outcome, after.Reason, after.Carrier, after.Message)
		}
		if again, needed := fence.StampFor(stamped, v.Lease); needed {
			t.Fatalf("stamped again, with %s", again)
		}
	})
}

// Whoever uses an ordinary credential is judged as if there were none.
func TestPropertyAnUnlistedCredentialChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, v := generatedWrite().Draw(t, "write"), generatedView().Draw(t, "view")
		with, without := w, w
		using(unlisted)(&with)
		using()(&without)
		got, want := fence.Decide(with, v), fence.Decide(without, v)
		got.Message, want.Message = "", ""
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("an unlisted credential changes the verdict (-without +with):\n%s", diff)
		}
	})
}

func TestPropertyATokenOfAnEndedTermIsNeverAdmitted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := leaseWith(func(l *fence.Lease) { l.Audit = rapid.Bool().Draw(t, "audit") })
		now := later(t, start)
		if now.Generation == start.Generation && now.Holder != "" {
			return // the term goes on
		}
		w := generatedWrite().Draw(t, "write")
		text := rapid.SampledFrom([]string{"34.bbbbbbbb", "34.bbbbbbbb/1", "34.bbbbbbbb/2", "34", "34/2"}).Draw(t, "ended token")
		if rapid.Bool().Draw(t, "by request") || w.New == nil {
			w.Writer.Extra = map[string][]string{tokenKey: {text}}
		} else {
			w.Writer.Extra = nil
		}
		if w.New != nil && w.Subresource != fence.SubresourceScale {
			w.New.Annotations = map[string]string{tokenKey: text}
		}
		v := fence.View{Lease: now, Origin: fence.Linearizable, MustPresent: rapid.Bool().Draw(t, "must present")}
		got := fence.Decide(w, v)
		if got.Presented.IsZero() {
			return // inherited or refused before it was read
		}
		if got.Outcome != fence.Deny || got.Audited != now.Audit {
			t.Fatalf("%s of an ended term: %s %s under %+v", got.Presented, got.Outcome, got.Reason, now)
		}
	})
}

func TestPropertyAnInheritedAnnotationPresentsNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, v := generatedWrite().Draw(t, "write"), generatedView().Draw(t, "view")
		if w.Operation != fence.Update {
			return
		}
		w.New.Annotations = maps.Clone(w.Old.Annotations)
		w.Writer.Extra = nil
		got := fence.Decide(w, v)
		if !got.Presented.IsZero() || got.Carrier != fence.CarrierNone || got.Reason == fence.CurrentToken {
			t.Fatalf("%s presents %s by %q", got.Reason, got.Presented, got.Carrier)
		}
	})
}

// Break-glass lets a missing token pass and nothing else.
func TestPropertyAnOverrideHelpsOnlyWhereNoTokenIsPresented(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, v := generatedWrite().Draw(t, "write"), generatedView().Draw(t, "view")
		w.Override = fence.Override{Reason: "incident 4711", Permitted: true}
		plain := w
		plain.Override = fence.Override{}
		with, without := fence.Decide(w, v), fence.Decide(plain, v)
		if cmp.Equal(with, without) {
			return
		}
		if with.Reason != fence.Overridden || with.Carrier != fence.CarrierNone || v.Origin != fence.Linearizable {
			t.Fatalf("an override turns %s into %s", without.Reason, with.Reason)
		}
		switch without.Reason {
		case fence.MissingToken, fence.FinalDelete, fence.NotSubject:
		default:
			t.Fatalf("an override turns %s into %s", without.Reason, with.Reason)
		}
		for _, half := range []fence.Override{{Reason: "incident 4711"}, {Permitted: true}} {
			w.Override = half
			if got := fence.Decide(w, v); !cmp.Equal(got, without) {
				t.Fatalf("%+v turns %s into %s", half, without.Reason, got.Reason)
			}
		}
	})
}

func TestPropertyOnlySystemWritersTakeTheirPath(t *testing.T) {
	t.Parallel()
	near := rapid.Custom(func(t *rapid.T) string {
		user := rapid.SampledFrom([]string{collector, migrator, shared}).Draw(t, "user")
		return rapid.SampledFrom([]string{
			user + " ", " " + user, strings.ToUpper(user), user + "x", user[:len(user)-1],
			strings.Replace(user, "kube-system", "reports", 1) + "-", user + ":" + user, user + "\x00", user + "\n",
		}).Draw(t, "near")
	})
	rapid.Check(t, func(t *rapid.T) {
		w, v := generatedWrite().Draw(t, "write"), generatedView().Draw(t, "view")
		w.Writer.Username = rapid.OneOf(rapid.String(), near).Draw(t, "name")
		w.Writer.Groups = []string{collector, migrator, "system:masters"}
		if w.System.Knows(w.Writer.Username) {
			return
		}
		if got := fence.Decide(w, v); got.Reason == fence.SystemWriter {
			t.Fatalf("%q takes the path of system writers", w.Writer.Username)
		}
	})
}

// Audit differs from enforcement in what is done with a refusal, and in nothing that is counted.
func TestPropertyAuditCountsWhatEnforcementRefuses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, v := generatedWrite().Draw(t, "write"), generatedView().Draw(t, "view")
		v.Origin, v.Lease.Audit = fence.Linearizable, false
		enforced := fence.Decide(w, v)
		v.Lease.Audit = true
		audited := fence.Decide(w, v)
		if enforced.Reason == fence.NotStamped {
			// Marks prove nothing in Audit, so that they need not move.
			if audited.Reason != fence.CurrentToken {
				t.Fatalf("enforced %s, audited %s", enforced.Reason, audited.Reason)
			}
			return
		}
		if audited.Reason != enforced.Reason || audited.Outcome != enforced.Outcome ||
			audited.Audited != (enforced.Outcome == fence.Deny) || audited.Message != enforced.Message {
			t.Fatalf("enforced %s %s, audited %s %s", enforced.Outcome, enforced.Reason, audited.Outcome, audited.Reason)
		}
		if !audited.Admits() {
			t.Fatalf("Audit refuses: %s", audited.Reason)
		}
	})
}

// A read makes a verdict final: it never asks for another read.
func TestPropertyALinearizableLeaseIsEnough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, v := generatedWrite().Draw(t, "write"), generatedView().Draw(t, "view")
		v.Origin = fence.Linearizable
		if got := fence.Decide(w, v); got.Outcome == fence.NeedsRead {
			t.Fatalf("another read is asked for: %s", got.Reason)
		}
	})
}
