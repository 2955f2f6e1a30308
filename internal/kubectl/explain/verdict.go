// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fencedlease/fencedlease/internal/fence"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

// verdict is the answer. Its zero value is that the write would pass.
type verdict struct {
	refused bool
	// by is what refuses the write, and fenced says that it is the fence.
	by     string
	fenced bool
	// reason is the rule that decides, message what is said about it.
	reason, message string
	// next is the next step, where the message has none.
	next string
}

// verdictOfAnswer reads the answer to a dry run. What tells nothing about the write is returned as an error.
func verdictOfAnswer(err error) (verdict, error) {
	var impersonation *fenced.ImpersonationError
	if errors.As(err, &impersonation) {
		return verdict{
			refused: true, by: "authorization, before any fence", reason: "Impersonation", message: impersonation.Error(),
			next: "grant the right, or let the object carry the token: --carrier=annotation",
		}, nil
	}
	if refusal, ok := fenced.Cause(err); ok {
		v := verdict{refused: true, fenced: true, reason: string(refusal.Type), message: refusal.Message}
		switch {
		case refusal.Lease.Namespace != "":
			v.by = "the fence of FencedLease " + refusal.Lease.String()
		default:
			v.by = "the policy of marks, fencedlease-marks, for FencedLease " + refusal.Lease.Name
		}
		return v, nil
	}
	v := verdict{refused: true, by: "the API server, not by a fence", reason: string(apierrors.ReasonForError(err)), message: err.Error()}
	switch {
	case apierrors.IsForbidden(err):
		v.next = "ask for the right that is missing, or see the admission that the message names"
	case apierrors.IsConflict(err):
		v.next = "read the object again and apply the change to what is stored; with the verb apply see --force-conflicts"
	case apierrors.IsInvalid(err):
		v.next = "mend the object as the message says"
	case apierrors.IsNotFound(err):
		v.next = "create the object first, or see whether the name and the namespace are right"
	case apierrors.IsAlreadyExists(err):
		v.next = "use update, patch or apply"
	default:
		return verdict{}, err
	}
	return v, nil
}

// meaning says what a reason of the fence means.
func meaning(reason fence.Reason) string {
	switch reason {
	case fence.CurrentToken:
		return "the token is of the current, held term"
	case fence.SealedTerm:
		return "the token and the object's mark are of the current term, which was sealed"
	case fence.DeleteIntent:
		return "the object's mark asks for its deletion under the current generation"
	case fence.SystemWriter:
		return "a controller of the control plane makes a harmless change"
	case fence.NotSubject:
		return "the guard does not ask this writer for a token"
	case fence.Overridden:
		return "the writer may bypass the fence and says why"
	case fence.NotGuarded:
		return "the lease does not guard the object"
	case fence.StaleToken:
		return "the token is older than the lease's generation or than the object's mark"
	case fence.MissingToken:
		return "the write presents no token"
	case fence.Released:
		return "the token is of a term that was released"
	case fence.FutureToken:
		return "the token is above the lease's generation"
	case fence.ForkedTerm:
		return "the token has the lease's generation and another term"
	case fence.MalformedToken:
		return "what is presented is not one well-formed token"
	case fence.MarkTampered:
		return "the write removes the mark"
	case fence.FinalDelete:
		return "the write empties the finalizers of an object that is being deleted"
	case fence.AlreadyApplied:
		return "the object records the token's operation as applied to it"
	case fence.Reason(fenced.RecordTampered):
		return "the write changes the object's record of operations"
	case fence.SealPending:
		return "the token is of the current term, which is still to be sealed"
	case fence.NotStamped, fence.UnsupportedOperation, fence.NotFresh:
		return "there is no telling now"
	default:
		return "a rule that this version of the plugin does not know"
	}
}
