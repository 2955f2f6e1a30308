// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/fencedlease/fencedlease/internal/fence" //nolint:depguard // the causes of this package are those of the decision
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

var reports = schema.GroupResource{Group: "example.com", Resource: "reports"}

func webhookRefusal(cause, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 403, Reason: "Fenced",
		Message: `admission webhook "own-1.guards.fencedlease.io" denied the request: ` + message,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
			Type: metav1.CauseType(cause), Message: message, Field: "metadata.annotations[token.fencedlease.io/report-writer]",
		}}},
	}}
}

func policyRefusal(policy, message string) error {
	return apierrors.NewForbidden(reports, "weekly", fmt.Errorf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", policy, policy, message))
}

func TestCause(t *testing.T) {
	const stale = "FencedLease reports/report-writer: token presented 5.aaaaaaaa is stale; more"
	const falls = "the mark token.fencedlease.io/report-writer must not fall or vanish: the object carries 6.bbbbbbbb/1, the write "
	const later = ": a later write than the one this is based on, or a newer holder of the FencedLease, has set it. Read the object again"
	const record = "the record of operations operations.fencedlease.io/report-writer must stay as it is stored: the write removes it. Read the object again"
	lease := types.NamespacedName{Namespace: "reports", Name: "report-writer"}
	nameOnly := types.NamespacedName{Name: "report-writer"}
	for name, test := range map[string]struct {
		err  error
		want *fenced.Refusal
	}{
		"a refusal by the webhook":               {webhookRefusal("StaleToken", stale), &fenced.Refusal{Type: fenced.StaleToken, Lease: lease, Message: stale}},
		"a wrapped refusal":                      {fmt.Errorf("update report: %w", webhookRefusal("StaleToken", stale)), &fenced.Refusal{Type: fenced.StaleToken, Lease: lease, Message: stale}},
		"a refusal behind an ordinary error":     {errors.Join(apierrors.NewConflict(reports, "weekly", nil), webhookRefusal("Released", stale)), &fenced.Refusal{Type: fenced.Released, Lease: lease, Message: stale}},
		"a refusal in an aggregate":              {utilerrors.NewAggregate([]error{errors.New("other"), webhookRefusal("StaleToken", stale)}), &fenced.Refusal{Type: fenced.StaleToken, Lease: lease, Message: stale}},
		"a cause that only newer servers know":   {webhookRefusal("NotYetKnown", stale), &fenced.Refusal{Type: "NotYetKnown", Lease: lease, Message: stale}},
		"a cause without a lease in its message": {webhookRefusal("StaleToken", "no"), &fenced.Refusal{Type: fenced.StaleToken, Lease: nameOnly, Message: "no"}},
		"a refusal without causes": {
			&apierrors.StatusError{ErrStatus: metav1.Status{Code: 403, Reason: "Fenced", Message: "no"}}, &fenced.Refusal{Message: "no"},
		},
		"the policy refuses a lower token": {
			policyRefusal("fencedlease-marks", falls+"sets 5.aaaaaaaa/2"+later),
			&fenced.Refusal{Type: fenced.StaleToken, Lease: nameOnly, Message: falls + "sets 5.aaaaaaaa/2" + later},
		},
		"the policy refuses what is no token": {
			policyRefusal("fencedlease-marks", falls+"sets : a later write\nthan"+later),
			&fenced.Refusal{Type: fenced.MalformedToken, Lease: nameOnly, Message: falls + "sets : a later write\nthan" + later},
		},
		"the policy refuses a removed mark": {
			policyRefusal("fencedlease-marks", falls+"removes it"+later),
			&fenced.Refusal{Type: fenced.MarkTampered, Lease: nameOnly, Message: falls + "removes it" + later},
		},
		"the policy refuses several tokens": {
			policyRefusal("fencedlease-marks", "the request carries 2 values of token.fencedlease.io/report-writer: send one token for each FencedLease"),
			&fenced.Refusal{
				Type: fenced.MalformedToken, Lease: nameOnly,
				Message: "the request carries 2 values of token.fencedlease.io/report-writer: send one token for each FencedLease",
			},
		},
		"the policy cannot name the mark": {
			policyRefusal("fencedlease-marks", "a mark (annotation token.fencedlease.io/<lease>) must not fall or vanish: read the object again and keep it"),
			&fenced.Refusal{Type: fenced.MarkTampered, Message: "a mark (annotation token.fencedlease.io/<lease>) must not fall or vanish: read the object again and keep it"},
		},
		"the policy cannot name the key": {
			policyRefusal("fencedlease-marks", "a request must carry one token for each FencedLease"),
			&fenced.Refusal{Type: fenced.MalformedToken, Message: "a request must carry one token for each FencedLease"},
		},
		"the policy refuses a record that is changed": {
			policyRefusal("fencedlease-marks", record), &fenced.Refusal{Type: fenced.RecordTampered, Lease: nameOnly, Message: record},
		},
		"the policy cannot name the record": {
			policyRefusal("fencedlease-marks", "the record of operations (annotation operations.fencedlease.io/<lease>) must stay as it is stored: read"),
			&fenced.Refusal{Type: fenced.RecordTampered, Message: "the record of operations (annotation operations.fencedlease.io/<lease>) must stay as it is stored: read"},
		},
		"the policy could not be evaluated":                 {policyRefusal("fencedlease-marks", "expression 'x' resulted in error: no such key: y"), nil},
		"another policy uses the same words":                {policyRefusal("other", falls+"removes it"+later), nil},
		"no error":                                          {nil, nil},
		"an error of another kind":                          {errors.New("Fenced"), nil},
		"a right is missing":                                {apierrors.NewForbidden(reports, "weekly", errors.New("no right")), nil},
		"a conflict":                                        {apierrors.NewConflict(reports, "weekly", errors.New("modified")), nil},
		"an admission without an answer":                    {apierrors.NewServiceUnavailable("cannot tell whether this write is current"), nil},
		"another webhook refuses with the reason Forbidden": {apierrors.NewForbidden(reports, "weekly", errors.New(stale)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var want fenced.Refusal
			if test.want != nil {
				want = *test.want
			}
			got, ok := fenced.Cause(test.err)
			if diff := cmp.Diff(want, got); diff != "" || ok != (test.want != nil) {
				t.Errorf("Cause is %v, -want +got:\n%s", ok, diff)
			}
			if fenced.IsFenced(test.err) != ok {
				t.Errorf("IsFenced says %v", !ok)
			}
		})
	}
}

func TestCausesAreThoseOfTheDecision(t *testing.T) {
	var want, got []string
	for _, reason := range fence.DenyReasons() {
		want = append(want, string(reason))
	}
	for _, cause := range []fenced.CauseType{
		fenced.StaleToken, fenced.MissingToken, fenced.Released, fenced.FutureToken, fenced.ForkedTerm, fenced.MalformedToken,
		fenced.MarkTampered, fenced.FinalDelete, fenced.AlreadyApplied,
	} {
		got = append(got, string(cause))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
