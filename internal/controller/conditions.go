// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
)

// maxMessage is the largest length of a condition's message.
const maxMessage = 32768

// facts are what the conditions of a lease are made of, beside the lease itself.
type facts struct {
	report report
	// floor is the generationFloor that is about to be written.
	floor int64
	// storeWentBack says that the store answered with an older lease than a replica had seen.
	storeWentBack bool
	// scanned says that the guarded objects have been looked through in this pass; implausible is an object with an
	// implausible mark, found by that or reported by a replica, or empty.
	scanned     bool
	implausible string
	// seal is how far the seal of the term is, and sealedGeneration what is about to be written.
	seal             sealing
	sealedGeneration int64
}

// conditionsOf returns all conditions of a lease. A condition whose status stays keeps its time of transition.
func conditionsOf(lease *v1alpha1.FencedLease, f facts, now time.Time) []metav1.Condition {
	conditions := slices.Clone(lease.Status.Conditions)
	for _, c := range []metav1.Condition{
		readyCondition(lease, f.report),
		heldCondition(lease),
		sealedCondition(lease, f),
		lateCreateCondition(lease, f),
		behindCondition(lease, f),
		implausibleCondition(lease, f),
	} {
		c.ObservedGeneration = lease.Generation
		c.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
		if len(c.Message) > maxMessage {
			c.Message = c.Message[:maxMessage]
		}
		meta.SetStatusCondition(&conditions, c)
	}
	return conditions
}

func readyCondition(lease *v1alpha1.FencedLease, r report) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	before := meta.FindStatusCondition(lease.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case len(lease.Spec.Guards) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonNoGuards, "the lease guards nothing"
	case !r.known && before != nil && before.ObservedGeneration == lease.Generation:
		// A replica that was elected a moment ago keeps what its predecessor found out until it has looked itself.
		c.Status, c.Reason, c.Message = before.Status, before.Reason, before.Message
	case !r.known:
		c.Reason, c.Message = v1alpha1.ReasonInstalling, "the registration is about to be written"
	case !r.verdict.inForce:
		c.Reason, c.Message = r.verdict.reason, r.verdict.message
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonInForce, r.verdict.message
		if len(r.problems) > 0 {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, problemsReason(r.problems), problemsMessage(r.problems)
		}
	}
	return c
}

// problemsReason prefers what needs an action.
func problemsReason(problems []Problem) string {
	if slices.ContainsFunc(problems, func(p Problem) bool { return p.Reason != ProblemMissing }) {
		return v1alpha1.ReasonGuardSkipped
	}
	return v1alpha1.ReasonKindMissing
}

func problemsMessage(problems []Problem) string {
	texts := make([]string, 0, len(problems))
	for _, p := range problems {
		texts = append(texts, fmt.Sprintf("guards[%d]: %s", p.Guard, p.Message))
	}
	return strings.Join(texts, "; ") + "; everything else that the lease guards is in force"
}

func heldCondition(lease *v1alpha1.FencedLease) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionHeld, Status: metav1.ConditionFalse}
	generation, holder := ptr.Deref(lease.Status.Generation, 0), ptr.Deref(lease.Status.HolderIdentity, "")
	switch {
	case generation == 0:
		c.Reason, c.Message = v1alpha1.ReasonNeverHeld, "nobody has acquired the lease yet"
	case holder == "":
		c.Reason, c.Message = v1alpha1.ReasonReleased, fmt.Sprintf("the holder of generation %d has released the lease", generation)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonAcquired, fmt.Sprintf("held by %s under generation %d", holder, generation)
	}
	return c
}

func sealedCondition(lease *v1alpha1.FencedLease, f facts) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionSealed, Status: metav1.ConditionFalse}
	generation, progress := ptr.Deref(lease.Status.Generation, 0), f.seal.status
	switch {
	case lease.Status.Seal != v1alpha1.SealRequired:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonSealNotRequired, "the term needs no seal"
	case f.sealedGeneration == generation:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonSealed, fmt.Sprintf("every guarded object carries generation %d", generation)
		if progress.Message != "" {
			c.Message += "; but: " + progress.Message
		}
	case f.seal.waiting != "":
		c.Reason = v1alpha1.ReasonSealWaiting
		c.Message = fmt.Sprintf("before guarded objects are stamped with generation %d, the guards must be in force: %s", generation, f.seal.waiting)
	case progress.State == seal.Forbidden:
		c.Reason, c.Message = v1alpha1.ReasonSealForbidden, progress.Message
	case progress.State == seal.Failing:
		c.Reason, c.Message = v1alpha1.ReasonSealFailing, progress.Message
	default:
		c.Reason = v1alpha1.ReasonSealPending
		c.Message = fmt.Sprintf("guarded objects are being stamped with generation %d: %d are, about %d are still to be looked at",
			generation, progress.Stamped, progress.Pending)
	}
	return c
}

// lateCreateCondition stays True until a later term is sealed without late creates, or needs no seal.
func lateCreateCondition(lease *v1alpha1.FencedLease, f facts) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLateCreate, Status: metav1.ConditionFalse}
	before := meta.FindStatusCondition(lease.Status.Conditions, v1alpha1.ConditionLateCreate)
	sealedNow := f.sealedGeneration != ptr.Deref(lease.Status.SealedGeneration, 0)
	switch late := f.seal.status.Late; {
	case late.Count > 0:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonLateCreateReported
		what := "it carries the current term's mark now: see whether it should be there"
		if late.Deleted {
			c.Reason, what = v1alpha1.ReasonLateCreateDeleted, "it was deleted"
		}
		c.Message = fmt.Sprintf("after the seal of generation %d had begun, guarded objects appeared that were created under an ended term; the last is %s: %s",
			ptr.Deref(lease.Status.Generation, 0), late.Last, what)
	case before != nil && before.Status == metav1.ConditionTrue && !sealedNow && lease.Status.Seal == v1alpha1.SealRequired:
		c.Status, c.Reason, c.Message = before.Status, before.Reason, before.Message
	default:
		c.Reason, c.Message = v1alpha1.ReasonNoLateCreate, "no object of an ended term has appeared"
	}
	return c
}

// behindCondition is read off the lease: a floor above the generation of a lease that has been held was raised.
func behindCondition(lease *v1alpha1.FencedLease, f facts) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionGenerationBehind, Status: metav1.ConditionFalse}
	generation := ptr.Deref(lease.Status.Generation, 0)
	if generation == 0 || f.floor <= generation {
		c.Reason, c.Message = v1alpha1.ReasonGenerationCurrent, "nothing above the lease's generation has been seen"
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonHigherGenerationSeen
	before := meta.FindStatusCondition(lease.Status.Conditions, v1alpha1.ConditionGenerationBehind)
	if f.storeWentBack || before != nil && before.Reason == v1alpha1.ReasonStoreWentBack {
		c.Reason = v1alpha1.ReasonStoreWentBack
	}
	c.Message = fmt.Sprintf("generation %d has been seen, the lease has %d: the store was restored or objects came from elsewhere; the next acquisition starts above", f.floor, generation)
	return c
}

// implausibleCondition stays True until a look through the guarded objects finds no such mark any more.
func implausibleCondition(lease *v1alpha1.FencedLease, f facts) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionImplausibleMark, Status: metav1.ConditionFalse}
	before := meta.FindStatusCondition(lease.Status.Conditions, v1alpha1.ConditionImplausibleMark)
	switch {
	case f.implausible != "":
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonImplausibleMarkSeen
		c.Message = f.implausible + " carries a mark that no real history can have produced: delete the object and create it anew"
	case !f.scanned && before != nil && before.Status == metav1.ConditionTrue:
		c.Status, c.Reason, c.Message = before.Status, before.Reason, before.Message
	default:
		c.Reason, c.Message = v1alpha1.ReasonMarksPlausible, "no such mark has been seen"
	}
	return c
}
