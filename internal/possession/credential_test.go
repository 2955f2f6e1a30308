// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package possession

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
)

var termOfA = Term{Namespace: "reports", Name: "report-writer", UID: "u1", Generation: 101, ID: "aaaaaaaa", Holder: "worker-a"}

// entries are written as id and term: "1a" is credential 1 of term aaaaaaaa.
func entries(texts ...string) []v1alpha1.Credential {
	var list []v1alpha1.Credential
	for _, text := range texts {
		term := string(slices.Repeat([]byte{text[1]}, 8))
		list = append(list, v1alpha1.Credential{ID: "JTI=" + text[:1], Term: term})
	}
	return list
}

func TestRecordingKeepsAsManyAsFit(t *testing.T) {
	for name, c := range map[string]struct {
		before []v1alpha1.Credential
		spent  []string
		want   []v1alpha1.Credential
	}{
		"the first":                              {nil, nil, entries("na")},
		"after others":                           {entries("1z", "2a"), nil, entries("1z", "2a", "na")},
		"recorded twice":                         {entries("na", "1a"), nil, entries("1a", "na")},
		"the last that fits":                     {entries("1z", "2z", "3z", "4z", "5z", "6z", "7a"), nil, entries("1z", "2z", "3z", "4z", "5z", "6z", "7a", "na")},
		"the oldest of an ended term goes":       {entries("1z", "2z", "3z", "4z", "5z", "6z", "7z", "8a"), nil, entries("2z", "3z", "4z", "5z", "6z", "7z", "8a", "na")},
		"those of this term stay before others":  {entries("1a", "2z", "3z", "4z", "5z", "6z", "7z", "8z"), nil, entries("1a", "3z", "4z", "5z", "6z", "7z", "8z", "na")},
		"spent ones of this term go":             {entries("1a", "2a", "3z"), []string{"JTI=1"}, entries("2a", "3z", "na")},
		"spent ones make room for those of ends": {entries("1a", "2z", "3z", "4z", "5z", "6z", "7z", "8z"), []string{"JTI=1"}, entries("2z", "3z", "4z", "5z", "6z", "7z", "8z", "na")},
		"an id of another term is not spent":     {entries("1z"), []string{"JTI=1"}, entries("1z", "na")},
		"all of this term":                       {entries("1a", "2a", "3a", "4a", "5a", "6a", "7a", "8a"), nil, entries("2a", "3a", "4a", "5a", "6a", "7a", "8a", "na")},
	} {
		t.Run(name, func(t *testing.T) {
			spent := map[string]bool{}
			for _, id := range c.spent {
				spent[id] = true
			}
			lease := env.HeldLease(func(l *v1alpha1.FencedLease) { l.Status.Credentials = slices.Clone(c.before) })
			got := Recording(lease, termOfA, "JTI=n", spent)
			want := Patch{
				Metadata: &PatchMetadata{ResourceVersion: "500"},
				Status:   PatchStatus{Generation: 101, Term: "aaaaaaaa", HolderIdentity: "worker-a", Credentials: c.want},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.before, lease.Status.Credentials); diff != "" {
				t.Errorf("the lease was changed (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever is there, the patch adds one entry for the own term and changes no term of another.
func TestPropertyARecordingIsOneTheRulesAccept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lease := env.HeldLease()
		for i := range rapid.IntRange(0, MaxCredentials).Draw(t, "entries") {
			lease.Status.Credentials = append(lease.Status.Credentials, v1alpha1.Credential{
				ID: fmt.Sprintf("JTI=%d", i), Term: rapid.SampledFrom([]string{"aaaaaaaa", "zzzzzzzz"}).Draw(t, "term"),
			})
		}
		spent := map[string]bool{"JTI=0": rapid.Bool().Draw(t, "spent"), "JTI=7": true}
		got := Recording(lease, termOfA, "JTI=n", spent).Status.Credentials
		if len(got) > MaxCredentials {
			t.Fatalf("%d entries", len(got))
		}
		seen := map[string]bool{}
		for _, c := range got {
			if seen[c.ID] {
				t.Fatalf("%s twice", c.ID)
			}
			seen[c.ID] = true
			if c.ID != "JTI=n" && !slices.Contains(lease.Status.Credentials, c) {
				t.Fatalf("entry %+v was not there", c)
			}
		}
		if !slices.Contains(got, v1alpha1.Credential{ID: "JTI=n", Term: "aaaaaaaa"}) {
			t.Fatal("the new entry is missing")
		}
	})
}
