// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/internal/probe"
)

const (
	// auditVerdict is the key of the audit annotation, below the webhook's name.
	auditVerdict = "verdict"
	// auditOverride is the key of the audit annotation that repeats an override's reason.
	auditOverride = "override"
	// maxWarning bounds a warning: API servers cut longer ones.
	maxWarning = 250
)

// answerOf encodes verdicts: all leases that guard the object must admit the write.
func answerOf(r *review, verdicts []fence.Verdict) admission.Response {
	answer := admission.Allowed("")
	if i := slices.IndexFunc(verdicts, refuses); i >= 0 && r.outdated() {
		answer = conflict(r)
	} else if i >= 0 {
		answer = deny(r, verdicts[i])
	} else if i := slices.IndexFunc(verdicts, unknown); i >= 0 {
		answer = unavailable(r, verdicts[i])
	}
	for _, v := range verdicts {
		if v.Outcome == fence.Deny && v.Audited {
			answer.Warnings = append(answer.Warnings, short("would be refused ("+string(v.Reason)+") if not in Audit: "+v.Message))
		}
		if v.Reason == fence.Overridden {
			answer.Warnings = append(answer.Warnings, short(fmt.Sprintf("passed FencedLease %s without a token, by override", v.Lease)))
		}
	}
	if len(verdicts) > 0 {
		answer.AuditAnnotations = map[string]string{auditVerdict: summary(verdicts)}
		for _, v := range verdicts {
			if v.Reason == fence.Overridden {
				answer.AuditAnnotations[auditOverride] = short(fence.OverrideReason(r.write, v.Lease.Name))
			}
		}
	}
	return answer
}

func refuses(v fence.Verdict) bool { return v.Outcome == fence.Deny && !v.Audited }

func unknown(v fence.Verdict) bool { return v.Outcome != fence.Allow && v.Outcome != fence.Deny }

// deny answers 403 with a reason and a cause of ours. Not 409, on which clients try again, and no time to retry after;
// conflict is for what is one.
func deny(r *review, v fence.Verdict) admission.Response {
	causes := []metav1.StatusCause{causeOf(v)}
	if v.Recorded.Operation != "" {
		causes = append(causes, metav1.StatusCause{
			Type: v1alpha1.CauseOperationRecord, Message: v.Recorded.String(),
			Field: annotationField(v1alpha1.OperationsKey(v.Lease.Name)),
		})
	}
	return refuse(r, http.StatusForbidden, v1alpha1.StatusReasonFenced, v.Message, causes...)
}

// conflict answers as the API server would: the client reads the object again, and shows then which token it has.
func conflict(r *review) admission.Response {
	return refuse(r, http.StatusConflict, metav1.StatusReasonConflict,
		"the object has been modified since resourceVersion "+r.basedOn+": read it again and apply the change to what is stored")
}

func causeOf(v fence.Verdict) metav1.StatusCause {
	return metav1.StatusCause{Type: metav1.CauseType(v.Reason), Message: v.Message, Field: annotationField(v1alpha1.TokenKey(v.Lease.Name))}
}

func annotationField(key string) string { return "metadata.annotations[" + key + "]" }

// sealRetry is after how many seconds a write should be repeated that came before its term was sealed.
const sealRetry = 1

// unavailable answers that no admission is possible now. The client may try again; nothing was admitted. The time to retry
// after makes clients do so by themselves, which a write that is merely early wants; client-go gives up after ten times.
func unavailable(r *review, v fence.Verdict) admission.Response {
	answer := refuse(r, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, v.Message, causeOf(v))
	if v.Reason == fence.SealPending {
		answer.Result.Details.RetryAfterSeconds = sealRetry
	}
	return answer
}

func refuseUnavailable(r *review, err error) admission.Response {
	return refuse(r, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		"cannot tell whether this write is current, so it is not admitted: "+err.Error())
}

func refuseMalformed(err error) admission.Response {
	return refuse(&review{}, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
}

// answerProbe refuses a probe and names the registration it was meant for: the proof that the API server calls by it.
func answerProbe(hash string) admission.Response {
	return refuse(&review{}, http.StatusForbidden, v1alpha1.StatusReasonFenced, probe.Refusal(hash))
}

func refuse(r *review, code int32, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Allowed: false,
		Result: &metav1.Status{
			Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
			Details: &metav1.StatusDetails{
				Name: r.name, Group: r.resource.Group, Kind: r.resource.Resource, Causes: causes,
			},
		},
	}}
}

// summary tells the verdicts in one line: "reports/report-writer=StaleToken".
func summary(verdicts []fence.Verdict) string {
	parts := make([]string, 0, len(verdicts))
	for _, v := range verdicts {
		part := v.Lease.String() + "=" + string(v.Reason)
		if v.Audited {
			part += " (Audit)"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

func short(text string) string {
	if len(text) <= maxWarning {
		return text
	}
	return strings.ToValidUTF8(text[:maxWarning-len("…")], "") + "…"
}

// object names the object for events and evidence: resource namespace/name.
func (r *review) object() string {
	name := r.name
	if r.namespace != "" {
		name = r.namespace + "/" + name
	}
	return r.resource.GroupResource().String() + " " + name
}
