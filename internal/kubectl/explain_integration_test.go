// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kubectl_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

func readyFor(lease *v1alpha1.FencedLease) bool {
	c := meta.FindStatusCondition(lease.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == lease.Generation
}

// explainIsTrue compares explain with what becomes of the write, for every verb, carrier and token. A write without a token
// is kubectl's.
func explainIsTrue(t *testing.T, i *installation) {
	lease := i.lease(t)
	n := "-n=" + lease.Namespace
	stale := i.succeeds(t, "acquire", "report-writer", n, "--identity=first")
	i.report(t, lease, "daily", stale)
	i.succeeds(t, "release", "report-writer", n, "--token="+stale)
	current := i.succeeds(t, "acquire", "report-writer", n, "--identity=second")
	forked := strings.Split(current, ".")[0] + ".zzzzzzzz"

	for _, carrier := range []string{"request", "annotation"} {
		for _, verb := range []string{"create", "update", "patch", "apply", "status", "scale", "delete"} {
			for kind, token := range map[string]string{"CurrentToken": current, "StaleToken": stale, "ForkedTerm": forked, "FutureToken": "999999", "MissingToken": ""} {
				if verb == "scale" && carrier == "annotation" {
					continue
				}
				name := fmt.Sprintf("%s of %s by %s", verb, kind, carrier)
				object := "daily"
				if verb == "create" {
					object = "new"
				}
				args := []string{"explain", n, "--verb=" + verb, "--carrier=" + carrier, "--force-conflicts"}
				w := with{}
				if slices.Contains([]string{"create", "apply"}, verb) {
					args, w.stdin = append(args, "-f=-"), manifest(t, lease, object, "explained")
				} else {
					args = append(args, "report/"+object)
				}
				if token != "" {
					args = append(args, "--token="+token)
				}
				a := i.as(t.Context(), t, w, args...)
				want := 2
				if kind == "CurrentToken" {
					want = 0
				}
				if a.code != want || !strings.Contains(a.out, kind) {
					t.Errorf("%s: want exit code %d and %s, got %d\n%s%s", name, want, kind, a.code, a.out, a.errOut)
				}
			}
		}
	}
	if got := i.value(t, lease, "daily") + i.value(t, lease, "new"); got != "first" {
		t.Errorf("explain has changed objects: %q", got)
	}

	for text, args := range map[string][]string{
		"create the object first": {"report/missing", "--verb=patch", "--token=report-writer=" + current},
		"use update, patch":       {"-f=-", "--verb=create", "--token=" + current},
		"mend the object":         {"report/daily", "--verb=patch", "-p={\"spec\":{\"value\":7}}", "--token=" + current},
		"MarkTampered":            {"-f=-", "--verb=update", "--token=" + forked, "--as=x", "--as-group=system:masters"},
	} {
		if text == "MarkTampered" {
			args = args[:2] // without any token
		}
		a := i.as(t.Context(), t, with{stdin: manifest(t, lease, "daily", "again")}, append([]string{"explain", n}, args...)...)
		if a.want(t, 2, ""); !strings.Contains(a.out, text) {
			t.Errorf("%v: want %q in it, got\n%s", args, text, a.out)
		}
	}
	i.call(t, "explain", "report/daily", n, "--verb=patch", "-p=[]", "--type=merge", "--token="+current).want(t, 1, "")
}

func explainWithoutWrite(t *testing.T, i *installation) {
	writer := v1alpha1.Subject{Kind: v1alpha1.SubjectUser, Name: "writer"}
	lease := i.lease(t, func(l *v1alpha1.FencedLease) { l.Spec.Guards[0].Subjects = []v1alpha1.Subject{writer} })
	n := "-n=" + lease.Namespace
	token := i.succeeds(t, "acquire", "report-writer", n, "--identity=me")
	i.report(t, lease, "daily", token)
	explain := func(more ...string) answer {
		return i.call(t, append([]string{"explain", "report/daily", n}, more...)...)
	}
	expect := func(a answer, code int, texts ...string) {
		t.Helper()
		a.want(t, code, "")
		for _, text := range texts {
			if !strings.Contains(a.out, text) {
				t.Errorf("want %q in it, got\n%s", text, a.out)
			}
		}
	}
	expect(explain(), 0, "would pass (NotSubject", "add --verb to let the API server judge")
	expect(explain("--as=writer", "--as-group=system:masters"), 2, "Writer:  writer", "would be refused (MissingToken", "add --token="+token)
	expect(explain("--as=writer", "--as-group=system:masters", "--token="+token), 0, "would pass (CurrentToken")
	expect(explain("--as=writer", "--as-group=system:masters", "--as-user-extra=token.fencedlease.io/report-writer="+token), 0, "carried by the user")
	expect(explain("--as=writer", "--as-group=system:masters", "--as-user-extra=override.fencedlease.io/report-writer=repair"), 0, "would pass (Overridden")
	expect(explain("--token=1.aaaaaaaa"), 2, "would be refused (StaleToken", "kubectl fencedlease acquire report-writer -n "+lease.Namespace)
	i.succeeds(t, "release", "report-writer", n, "--token="+token)
	expect(explain("--token="+token), 2, "would be refused (Released")
	expect(i.call(t, "explain", "report/missing", n, "--token="+token), 2, "there is no such object", "Create:")
	must(t, i.admin.Delete(t.Context(), lease))
	expect(explain(), 0, "no FencedLease")
}
