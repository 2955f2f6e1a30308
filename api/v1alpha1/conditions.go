// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a FencedLease. The controller sets all of them.
const (
	// ConditionReady is True when every guard that can be installed is in force on every API server, for the spec
	// generation in the condition's observedGeneration.
	ConditionReady = "Ready"
	// ConditionHeld is True while a holder is recorded. It says nothing about whether the holder still renews.
	ConditionHeld = "Held"
	// ConditionSealed is True when the current term needs no seal or has been sealed.
	ConditionSealed = "Sealed"
	// ConditionLateCreate is True when a guarded object that was created under an ended term appeared after the current
	// term's seal had begun. It stays True until a later term has been sealed without one.
	ConditionLateCreate = "LateCreate"
	// ConditionGenerationBehind is True when something showed a generation above the lease's: the store was restored,
	// or objects came from another cluster. The floor has been raised; the next acquisition starts above it.
	ConditionGenerationBehind = "GenerationBehind"
	// ConditionImplausibleMark is True when a guarded object carries a mark above any real history. Delete that object
	// and create it anew.
	ConditionImplausibleMark = "ImplausibleMark"
)

// Reasons of the conditions.
const (
	// ReasonInForce (Ready=True): a probe through every API server was refused by the installed guards.
	ReasonInForce = "InForce"
	// ReasonNoGuards (Ready=True): the lease guards nothing, so there is nothing to install.
	ReasonNoGuards = "NoGuards"
	// ReasonInstalling (Ready=False): the registration has been written and is not yet seen by every API server. Wait.
	ReasonInstalling = "Installing"
	// ReasonProbeFailed (Ready=False): a probe could not be made; the message says why.
	ReasonProbeFailed = "ProbeFailed"
	// ReasonGuardSkipped (Ready=False): a guard names something that cannot be guarded; the message says what.
	ReasonGuardSkipped = "GuardSkipped"
	// ReasonKindMissing (Ready=False): a guard names a kind that is not installed; it is guarded from the moment it is.
	ReasonKindMissing = "KindMissing"
	// ReasonAcquired (Held=True): a holder is recorded.
	ReasonAcquired = "Acquired"
	// ReasonReleased (Held=False): the last holder gave the lease up.
	ReasonReleased = "Released"
	// ReasonNeverHeld (Held=False): nobody has acquired the lease yet.
	ReasonNeverHeld = "NeverHeld"
	// ReasonSealNotRequired (Sealed=True): the term began without the need of a seal.
	ReasonSealNotRequired = "NotRequired"
	// ReasonSealed (Sealed=True): every guarded object carries the term's generation.
	ReasonSealed = "Sealed"
	// ReasonSealPending (Sealed=False): guarded objects are being stamped; the message says how many. Wait.
	ReasonSealPending = "Pending"
	// ReasonSealWaiting (Sealed=False): the guards must be in force before objects are stamped; see Ready.
	ReasonSealWaiting = "WaitingForGuards"
	// ReasonSealForbidden (Sealed=False): the manager lacks a right on a guarded kind; the message names the rule to grant.
	ReasonSealForbidden = "Forbidden"
	// ReasonSealFailing (Sealed=False): objects cannot be stamped for another reason, which the message tells. It is retried.
	ReasonSealFailing = "Failing"
	// ReasonNoLateCreate (LateCreate=False): no such object has been seen.
	ReasonNoLateCreate = "None"
	// ReasonLateCreateReported (LateCreate=True): the message names the object. It carries the current term's mark now. See
	// whether it should be there.
	ReasonLateCreateReported = "Reported"
	// ReasonLateCreateDeleted (LateCreate=True): the object that the message names was deleted, as spec.lateCreates says.
	ReasonLateCreateDeleted = "Deleted"
	// ReasonHigherGenerationSeen (GenerationBehind=True): a mark or a token above the lease's generation was seen.
	ReasonHigherGenerationSeen = "HigherGenerationSeen"
	// ReasonStoreWentBack (GenerationBehind=True): the store answered with an older lease than was seen before.
	ReasonStoreWentBack = "StoreWentBack"
	// ReasonGenerationCurrent (GenerationBehind=False): nothing above the lease's generation has been seen.
	ReasonGenerationCurrent = "Current"
	// ReasonMarksPlausible (ImplausibleMark=False): no such mark has been seen.
	ReasonMarksPlausible = "Plausible"
	// ReasonImplausibleMarkSeen (ImplausibleMark=True): the message names an object with such a mark.
	ReasonImplausibleMarkSeen = "ImplausibleMarkSeen"
)
