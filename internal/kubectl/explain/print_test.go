// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/internal/kubectl/clitest"
	"github.com/fencedlease/fencedlease/internal/kubectl/send"
	"github.com/fencedlease/fencedlease/internal/kubectl/target"
	"github.com/fencedlease/fencedlease/pkg/token"
)

var reports = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "reports"}

func report(mark string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(reports.GroupVersion().WithKind("Report"))
	u.SetNamespace("reports")
	u.SetName("daily")
	if mark != "" {
		u.SetAnnotations(map[string]string{v1alpha1.TokenKey("report-writer"): mark})
	}
	return u
}

func tokens(text string) map[types.NamespacedName]token.Token {
	t, err := token.Parse(text)
	if err != nil {
		panic(err)
	}
	return map[types.NamespacedName]token.Token{{Namespace: "reports", Name: "report-writer"}: t}
}

// refusedBy is the verdict on a refusal by the webhook.
func refusedBy(reason fence.Reason, message string) verdict {
	return verdict{refused: true, fenced: true, by: "the fence of FencedLease reports/report-writer", reason: string(reason), message: message}
}

func TestExplanationIsPrinted(t *testing.T) {
	onAll := map[string][]int{"": {0}, "status": {0}, "scale": {0}}
	notReady := func(l *v1alpha1.FencedLease) {
		l.Status.Conditions[0].Status, l.Status.Conditions[0].Reason, l.Status.Conditions[0].Message = metav1.ConditionFalse, v1alpha1.ReasonInstalling, "waiting for API servers"
	}
	audit := func(l *v1alpha1.FencedLease) { l.Spec.Enforcement = v1alpha1.EnforcementAudit }
	for name, e := range map[string]explanation{
		"current token": {
			verb: "patch", tokens: tokens("48215.k3v9x2ab"), stored: report("48214.aaaaaaaa/3"),
			leases: []*leaseView{{lease: clitest.Lease(), guards: onAll, verdict: &fence.Verdict{Outcome: fence.Allow, Reason: fence.CurrentToken}}},
		},
		"stale token": {
			verb: "apply", tokens: tokens("48214.aaaaaaaa"), stored: report("48215.k3v9x2ab"), leases: []*leaseView{{lease: clitest.Lease(), guards: onAll}},
			verdict: refusedBy(fence.StaleToken, "FencedLease reports/report-writer: token presented 48214.aaaaaaaa is stale; …"),
		},
		"no token, held":     {verb: "delete", stored: report(""), leases: []*leaseView{{lease: clitest.Lease(), guards: onAll}}, verdict: refusedBy(fence.MissingToken, "…")},
		"no token, released": {verb: "delete", stored: report("garbage"), leases: []*leaseView{{lease: clitest.Lease(clitest.Released), guards: onAll}}, verdict: refusedBy(fence.MissingToken, "…")},
		"mark removed":       {verb: "update", stored: report("48216"), leases: []*leaseView{{lease: clitest.Lease(), guards: onAll}}, verdict: refusedBy(fence.MarkTampered, "…")},
		"malformed":          {verb: "update", stored: report(""), leases: []*leaseView{{lease: clitest.Lease(), guards: onAll}}, verdict: refusedBy(fence.MalformedToken, "…")},
		"audit": {
			verb: "update", stored: report(""),
			leases: []*leaseView{{lease: clitest.Lease(audit), guards: onAll, verdict: &fence.Verdict{Outcome: fence.Deny, Reason: fence.MissingToken, Audited: true}}},
		},
		"not in force": {
			verb: "update", stored: report(""),
			leases: []*leaseView{{lease: clitest.Lease(notReady), guards: onAll, verdict: &fence.Verdict{Outcome: fence.Deny, Reason: fence.MissingToken}}},
		},
		"without a write": {
			tokens: tokens("48215.k3v9x2ab"), stored: report("48215.k3v9x2ab"), carrier: send.CarrierAnnotation,
			leases: []*leaseView{{
				lease: clitest.Lease(), guards: map[string][]int{"": {0}, "scale": {0}},
				rows: []row{
					{write{operation: fence.Update}, fence.Verdict{Outcome: fence.Allow, Reason: fence.CurrentToken}},
					{write{operation: fence.Update, subresource: "status"}, fence.Verdict{Outcome: fence.Allow, Reason: fence.NotSubject}},
					{write{operation: fence.Update, subresource: "scale"}, fence.Verdict{Outcome: fence.Deny, Reason: fence.MissingToken}},
					{write{operation: fence.Delete}, fence.Verdict{Outcome: fence.Unavailable, Reason: fence.NotStamped}},
				},
			}},
		},
		"not guarded, not there":     {verb: "create"},
		"leases of others not known": {verb: "update", incomplete: true, stored: report("")},
		"no leases known":            {verb: "update", leasesProblem: "you may not list FencedLeases", stored: report(""), verdict: refusedBy(fence.StaleToken, "…")},
		"refused by others": {
			verb: "update", stored: report(""),
			verdict: verdict{refused: true, by: "the API server, not by a fence", reason: "Conflict", message: "the object has been modified", next: "read the object again"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e.now, e.user = clitest.Now, authenticationv1.UserInfo{Username: "system:serviceaccount:reports:worker"}
			if e.carrier == "" {
				e.carrier = send.CarrierRequest
			}
			e.target = target.Target{Mapping: &meta.RESTMapping{Resource: reports}, Object: report("")}
			var out strings.Builder
			if err := e.print(&out); err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, name, out.String())
		})
	}
}

func TestEveryReasonHasAMeaning(t *testing.T) {
	for _, reason := range append(fence.AllowReasons(), fence.DenyReasons()...) {
		if strings.Contains(meaning(reason), "does not know") {
			t.Errorf("%s has no meaning", reason)
		}
	}
}

func TestAnswersAreRead(t *testing.T) {
	gr := reports.GroupResource()
	fenced := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: v1alpha1.StatusReasonFenced,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
			Type: "StaleToken", Message: "FencedLease reports/report-writer: token presented 1 is stale; …", Field: "metadata.annotations[token.fencedlease.io/report-writer]",
		}}},
	}}
	for name, c := range map[string]struct {
		answer error
		by     string
		reason string
		fenced bool
		noneIs bool
	}{
		"by the fence":          {answer: fenced, by: "the fence of FencedLease reports/report-writer", reason: "StaleToken", fenced: true},
		"by RBAC":               {answer: apierrors.NewForbidden(gr, "daily", errors.New("no")), by: "the API server, not by a fence", reason: "Forbidden"},
		"a conflict":            {answer: apierrors.NewConflict(gr, "daily", errors.New("changed")), by: "the API server, not by a fence", reason: "Conflict"},
		"invalid":               {answer: apierrors.NewInvalid(schema.GroupKind{}, "daily", nil), by: "the API server, not by a fence", reason: "Invalid"},
		"there already":         {answer: apierrors.NewAlreadyExists(gr, "daily"), by: "the API server, not by a fence", reason: "AlreadyExists"},
		"not there":             {answer: apierrors.NewNotFound(gr, "daily"), by: "the API server, not by a fence", reason: "NotFound"},
		"no quorum tells none":  {answer: apierrors.NewServiceUnavailable("cannot tell"), noneIs: true},
		"a bad patch asks none": {answer: apierrors.NewBadRequest("bad patch"), noneIs: true},
		"no connection":         {answer: errors.New("connection refused"), noneIs: true},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := verdictOfAnswer(c.answer)
			if c.noneIs {
				if !errors.Is(err, c.answer) {
					t.Errorf("no verdict: want the answer as an error, got %v and %+v", err, v)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := []any{v.refused, v.by, v.reason, v.fenced}
			if diff := cmp.Diff([]any{true, c.by, c.reason, c.fenced}, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}
