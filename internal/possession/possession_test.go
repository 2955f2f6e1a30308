// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package possession

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
)

func TestAcquisitionStartsAboveEverything(t *testing.T) {
	for name, c := range map[string]struct {
		lease *v1alpha1.FencedLease
		want  int64
	}{
		"above the generation":    {env.HeldLease(), 102},
		"above the floor":         {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Status.GenerationFloor = ptr.To[int64](300) }), 301},
		"above the minGeneration": {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Spec.MinGeneration = ptr.To[int64](400) }), 401},
	} {
		t.Run(name, func(t *testing.T) {
			patch, term, err := Acquisition(c.lease, "worker-b", "bbbbbbbb", env.Noon.Time)
			if err != nil {
				t.Fatal(err)
			}
			want := Patch{
				Metadata: &PatchMetadata{ResourceVersion: "500"},
				Status: PatchStatus{
					Generation: c.want, Term: "bbbbbbbb", HolderIdentity: "worker-b",
					Token:       ptr.To(token.Token{Generation: c.want, Term: "bbbbbbbb"}.String()),
					AcquireTime: ptr.To(env.Noon), RenewTime: ptr.To(env.Noon),
					Handover: ptr.To(v1alpha1.HandoverLazy), Seal: ptr.To(v1alpha1.SealNotRequired),
				},
			}
			if diff := cmp.Diff(want, patch); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			wantTerm := Term{
				Namespace: "reports", Name: "report-writer", UID: "u1", Generation: c.want, ID: "bbbbbbbb", Holder: "worker-b",
				AcquireTime: env.Noon.Time, Seal: v1alpha1.SealNotRequired,
			}
			if diff := cmp.Diff(wantTerm, term); diff != "" {
				t.Errorf("term (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAcquisitionRefusesAGenerationThatDoesNotExist(t *testing.T) {
	lease := env.HeldLease(func(l *v1alpha1.FencedLease) { l.Status.Generation = ptr.To(token.MaxGeneration) })
	if _, _, err := Acquisition(lease, "worker-b", "bbbbbbbb", env.Noon.Time); !errors.Is(err, token.ErrMalformed) {
		t.Errorf("acquisition above the largest generation: want %v, got %v", token.ErrMalformed, err)
	}
}

func TestSealIsDueAsTheRulesDemand(t *testing.T) {
	for name, c := range map[string]struct {
		lease *v1alpha1.FencedLease
		want  v1alpha1.Seal
	}{
		"Lazy after Lazy":                         {env.HeldLease(), v1alpha1.SealNotRequired},
		"Seal after Lazy":                         {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Spec.Handover = v1alpha1.HandoverSeal }), v1alpha1.SealRequired},
		"Lazy after Seal":                         {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Status.Handover = v1alpha1.HandoverSeal }), v1alpha1.SealRequired},
		"Lazy after a Lazy term that owes a seal": {env.HeldLease(func(l *v1alpha1.FencedLease) { l.Status.Seal = v1alpha1.SealRequired }), v1alpha1.SealRequired},
		"Lazy after a Lazy term that was sealed": {env.HeldLease(func(l *v1alpha1.FencedLease) {
			l.Status.Seal, l.Status.SealedGeneration = v1alpha1.SealRequired, ptr.To[int64](101)
		}), v1alpha1.SealNotRequired},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, DueSeal(c.lease)); diff != "" {
				t.Errorf("seal (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPatchesOfAHolderNameItsTerm(t *testing.T) {
	term := Term{Generation: 102, ID: "bbbbbbbb", Holder: "worker-b"}
	for name, c := range map[string]struct {
		patch Patch
		want  string
	}{
		"a renewal changes renewTime alone and never the token": {
			Renewal(term, env.Noon.Time),
			`{"status":{"generation":102,"term":"bbbbbbbb","holderIdentity":"worker-b","renewTime":"2026-11-01T12:00:00.123456Z"}}`,
		},
		"a release empties the holder": {
			Release(term),
			`{"status":{"generation":102,"term":"bbbbbbbb","holderIdentity":""}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := c.patch.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(body)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTermIDsFitTheirPattern(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		generation := rapid.Int64Range(1, token.MaxGeneration).Draw(rt, "generation")
		want := Term{Generation: generation, ID: NewTermID()}.Token()
		got, err := token.Parse(want.String())
		if err != nil {
			rt.Fatalf("parse the token of a new term: %v", err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Errorf("token (-want +got):\n%s", diff)
		}
	})
	seen := map[string]bool{}
	letters := map[byte]bool{}
	for range 1000 {
		id := NewTermID()
		if seen[id] {
			t.Errorf("term id %s was handed out twice", id)
		}
		seen[id] = true
		for i := range id {
			letters[id[i]] = true
		}
	}
	if diff := cmp.Diff(len(termAlphabet), len(letters)); diff != "" {
		t.Errorf("number of characters in use (-want +got):\n%s", diff)
	}
}

func TestErrorsOfALostTermAreConflictsThatSayWhoHolds(t *testing.T) {
	term := Term{Namespace: "reports", Name: "report-writer", Generation: 101, ID: "aaaaaaaa", Holder: "worker-a"}
	begin := `term 101.aaaaaaaa of "worker-a" on FencedLease reports/report-writer has ended: `
	end := "; stop the work of the term and acquire anew"
	for name, c := range map[string]struct {
		err  *LostError
		want string
	}{
		"a successor holds it":   {&LostError{Term: term, HolderIdentity: "worker-b", Generation: 102}, `"worker-b" holds the lease under generation 102`},
		"nobody holds it":        {&LostError{Term: term, Generation: 102}, "nobody holds the lease now"},
		"the lease is gone":      {&LostError{Term: term, Deleted: true}, "the lease was deleted"},
		"the lease is not known": {&LostError{Term: term}, "the lease could not be read to see who holds it"},
	} {
		t.Run(name, func(t *testing.T) {
			c.err.cause = apierrors.NewInvalid(v1alpha1.Kind.GroupKind(), "report-writer", nil)
			if diff := cmp.Diff(begin+c.want+end, c.err.Error()); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if !apierrors.IsConflict(c.err) || apierrors.IsInvalid(c.err) {
				t.Errorf("reason: want %s, got %s", metav1.StatusReasonConflict, apierrors.ReasonForError(c.err))
			}
			if _, err := json.Marshal(c.err.Status()); err != nil {
				t.Errorf("encode the status: %v", err)
			}
		})
	}
}
