// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/fence"
)

// stampResult is what became of a review of the stamping path, or of one lease in it. The values are a closed set: they
// label a metric, in the order in which the most telling of several is chosen.
type stampResult string

const (
	// stampFailed: it could not be found out in time whether the write is to be marked.
	stampFailed stampResult = "failed"
	// stampSet: the mark was set to the token of the credential's term.
	stampSet stampResult = "stamped"
	// stampNotNeeded: the credential is of the current term, and the mark shows it or is not the credential's to set.
	stampNotNeeded stampResult = "unneeded"
	// stampEnded: the credential is of a term that has ended.
	stampEnded stampResult = "ended"
	// stampUnlisted: the lease does not list the credential.
	stampUnlisted stampResult = "unlisted"
	// stampUnguarded: no lease guards the object.
	stampUnguarded stampResult = "unguarded"
	// stampMalformed: the call was no review.
	stampMalformed stampResult = "malformed"
)

func stampResults() []stampResult {
	return []stampResult{stampFailed, stampSet, stampNotNeeded, stampEnded, stampUnlisted, stampUnguarded, stampMalformed}
}

// Stamp answers a review of the mutating phase: a create or an update of a guarded object, made with a credential and
// without a token of its own. It sets the mark to the token of the credential's term, so that it moves in the same commit.
// It decides no verdict: what gets no stamp, because the credential's term has ended, the lease does not list it, or
// nothing could be found out, is judged in the validating phase like any other write.
func (h *Handler) Stamp(ctx context.Context, req admission.Request) admission.Response {
	begin := h.options.Clock.Now()
	r, err := decode(req, h.options.System)
	if err != nil {
		h.options.Metrics.stamped(stampMalformed, h.options.Clock.Since(begin))
		return refuseMalformed(err)
	}
	stamps, result, err := h.stamps(ctx, r)
	answer := admission.Allowed("")
	if err != nil {
		// The write is not marked. By a lease that enforces it is not admitted then, and the client is told to try again.
		logf.FromContext(ctx).Error(err, "Cannot tell whether a write is to be marked", "resource", r.resource.GroupResource().String(),
			"object", klog.KRef(r.namespace, r.name))
	}
	if len(stamps) > 0 {
		patch, err := stampPatch(r.write.New, stamps)
		if err != nil {
			logf.FromContext(ctx).Error(err, "Cannot mark a write")
			result = stampFailed
		} else {
			answer.Patch, answer.PatchType = patch, ptr.To(admissionv1.PatchTypeJSONPatch)
		}
	}
	h.options.Metrics.stamped(result, h.options.Clock.Since(begin))
	if log := logf.FromContext(ctx).V(1); log.Enabled() {
		log.Info("Looked at the credential of a guarded write", "requestID", req.UID, "resource", r.resource.GroupResource().String(),
			"operation", r.write.Operation, "object", klog.KRef(r.namespace, r.name), "user", r.write.Writer.Username,
			"dryRun", r.dryRun, "result", result, "stamps", stamps)
	}
	return answer
}

// stamp is an annotation to be set.
type stamp struct{ Key, Value string }

// stamps returns the marks to be set, in the order of the leases' names. An error goes with those that could be found out.
func (h *Handler) stamps(ctx context.Context, r *review) (stamps []stamp, result stampResult, err error) {
	if r.write.New == nil || r.subresource != fence.SubresourceMain {
		// The registration asks for no such write.
		return nil, stampNotNeeded, nil
	}
	if err := h.options.Leases.WaitFor(ctx, guardsVersion(ctx)); err != nil {
		return nil, stampFailed, fmt.Errorf("wait until this replica has seen the guards that the API server calls for: %w", err)
	}
	// The watched copy: at least as new as the registration that made the API server call.
	candidates, err := h.options.Leases.Guarding(r.resource.GroupResource(), r.namespace)
	if err != nil {
		return nil, stampFailed, fmt.Errorf("look up guards: %w", err)
	}
	found := map[stampResult]bool{}
	for _, lease := range candidates {
		s, result, failure := h.stampFor(ctx, r, lease)
		if found[result] = true; failure != nil {
			err = failure
		}
		if result == stampSet {
			stamps = append(stamps, s)
		}
	}
	for _, result := range stampResults() {
		if found[result] {
			return stamps, result, err
		}
	}
	return nil, stampUnguarded, err
}

// stampFor returns the mark to be set for one lease.
func (h *Handler) stampFor(ctx context.Context, r *review, lease *v1alpha1.FencedLease) (stamp, stampResult, error) {
	guards, err := h.matching(ctx, lease, r)
	if err != nil {
		return stamp{}, stampFailed, err
	}
	if len(guards) == 0 {
		return stamp{}, stampUnguarded, nil
	}
	// The watched copy, of any age. What it takes for the current term may have ended, which is found out before the write
	// is admitted; what it takes for an ended term has ended; what it does not list may have been recorded a moment ago.
	state, _ := fence.CredentialOf(r.write.Writer, fence.LeaseOf(lease))
	if state == fence.CredentialUnlisted && fence.HasCredential(r.write.Writer) {
		key := types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}
		// Linearizable, and shared with the reads of verdicts.
		switch fresh, err := h.options.Leases.Fresh(ctx, key); {
		case apierrors.IsNotFound(err):
			return stamp{}, stampUnguarded, nil
		case err != nil:
			return stamp{}, stampFailed, fmt.Errorf("read FencedLease %s: %w", key, err)
		default:
			lease = fresh
		}
		state, _ = fence.CredentialOf(r.write.Writer, fence.LeaseOf(lease))
	}
	mark, needed := fence.StampFor(r.write, fence.LeaseOf(lease))
	switch {
	case needed:
		return stamp{Key: v1alpha1.TokenKey(lease.Name), Value: mark.String()}, stampSet, nil
	case state == fence.CredentialEnded:
		return stamp{}, stampEnded, nil
	case state == fence.CredentialUnlisted:
		return stamp{}, stampUnlisted, nil
	default:
		return stamp{}, stampNotNeeded, nil
	}
}

// patchOperation is one operation of a JSON patch.
type patchOperation struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     any    `json:"value"`
}

// stampPatch returns the JSON patch that sets annotations of an object.
func stampPatch(object *fence.Object, stamps []stamp) ([]byte, error) {
	const annotations = "/metadata/annotations"
	var patch []patchOperation
	if object.Annotations == nil {
		patch = append(patch, patchOperation{"add", annotations, map[string]string{}})
	}
	// A key holds one slash and no tilde.
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, s := range stamps {
		patch = append(patch, patchOperation{"add", annotations + "/" + escape.Replace(s.Key), s.Value})
	}
	return json.Marshal(patch)
}
