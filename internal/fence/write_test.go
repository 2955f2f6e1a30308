// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/internal/fence"
)

func TestOverrideReason(t *testing.T) {
	t.Parallel()
	asks := func(text string) *fence.Object { return annotated(marked(""), overrideKey, text) }
	for name, tc := range map[string]struct {
		write fence.Write
		want  string
	}{
		"nothing is asked":                                    {update(marked(""), marked("")), ""},
		"an annotation of a create asks":                      {create(asks("incident 4711")), "incident 4711"},
		"a new annotation asks":                               {update(marked(""), asks("incident 4711")), "incident 4711"},
		"a changed annotation asks":                           {update(asks("incident 4710"), asks("incident 4711")), "incident 4711"},
		"an inherited annotation asks for nothing":            {update(asks("incident 4711"), asks("incident 4711")), ""},
		"a removed annotation asks for nothing":               {update(asks("incident 4711"), marked("")), ""},
		"an empty annotation asks for nothing":                {update(marked(""), asks("")), ""},
		"a reason of spaces asks for nothing":                 {update(marked(""), asks(" \t ")), ""},
		"a changed annotation of a status request asks":       {status(marked(""), asks("incident 4711")), "incident 4711"},
		"the request asks":                                    {remove(marked(""), extra(overrideKey, "incident 4711")), "incident 4711"},
		"a request of spaces asks for nothing":                {remove(marked(""), extra(overrideKey, "  ")), ""},
		"the request asks although an annotation is as it is": {update(asks("a"), asks("a"), extra(overrideKey, "b")), "b"},
		"the request's reason outdoes the annotation's":       {update(marked(""), asks("a"), extra(overrideKey, "b")), "b"},
		"two reasons in the request are none":                 {remove(marked(""), extra(overrideKey, "a", "b")), ""},
		"an override of another lease asks for nothing here":  {remove(marked(""), extra("override.fencedlease.io/other", "a")), ""},
		"a token is no reason":                                {remove(marked(""), carrying("34")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, fence.OverrideReason(tc.write, "report-writer")); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefaultSystemWriters(t *testing.T) {
	t.Parallel()
	writers := fence.DefaultSystemWriters()
	for user, want := range map[string]bool{
		collector: true,
		migrator:  true,
		shared:    true,
		"system:serviceaccount:kube-system:namespace-controller":      true,
		"system:serviceaccount:kube-system:namespace-controller2":     false,
		"system:serviceaccount:reports:namespace-controller":          false,
		"system:serviceaccount:kube-system:horizontal-pod-autoscaler": false,
		"system:apiserver":          false,
		"system:admin":              false,
		worker:                      false,
		"":                          false,
		"generic-garbage-collector": false,
	} {
		if got := writers.Knows(user); got != want {
			t.Errorf("knows %q: %v, want %v", user, got, want)
		}
	}
	// A caller that adds a writer to its copy adds none for others.
	writers.Collectors[0] = "somebody"
	if fence.DefaultSystemWriters().Knows("somebody") {
		t.Error("a caller can change the default")
	}
	if (fence.SystemWriters{}).Knows("") {
		t.Error("no writers know the empty name")
	}
}
