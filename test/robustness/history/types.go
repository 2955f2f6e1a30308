// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"math"
	"slices"
)

// Never is the time of what has not happened.
const Never = int64(math.MaxInt64)

// Outcome is what the client of an operation learned.
type Outcome string

const (
	// OK means that it was applied, or that it was a read that was answered.
	OK Outcome = "ok"
	// Refused means that the fence refused it; Cause says why. It was not applied.
	Refused Outcome = "refused"
	// Early means that it was held up as its term is still to be sealed. It was not applied.
	Early Outcome = "early"
	// Failed means that the answer says that it was not applied, for another reason than the fence: a conflict, no such object.
	Failed Outcome = "failed"
	// NotSent means that it did not leave the process, as the term had ended, or no connection could be opened.
	NotSent Outcome = "not sent"
	// Unknown means that it may have been applied, or be applied later.
	Unknown Outcome = "unknown"
)

// Verb is what an operation does.
type Verb string

// The verbs.
const (
	Create           Verb = "create"
	Update           Verb = "update"
	JSONPatch        Verb = "jsonpatch"
	MergePatch       Verb = "mergepatch"
	Apply            Verb = "apply"
	UpdateStatus     Verb = "updatestatus"
	PatchStatus      Verb = "patchstatus"
	Scale            Verb = "scale"
	Delete           Verb = "delete"
	DeleteCollection Verb = "deletecollection"
	Get              Verb = "get"
	List             Verb = "list"
	// Those of the lease itself.
	Acquire Verb = "acquire"
	Renew   Verb = "renew"
	Release Verb = "release"
)

// Writes are the verbs that change an object.
func Writes() []Verb {
	return []Verb{Create, Update, JSONPatch, MergePatch, Apply, UpdateStatus, PatchStatus, Scale, Delete, DeleteCollection}
}

// Deletes tells whether a verb removes objects.
func (v Verb) Deletes() bool { return v == Delete || v == DeleteCollection }

// Updates tells whether a verb changes an object or its status in place; a Scale is read and written in another way.
func (v Verb) Updates() bool {
	return slices.Contains([]Verb{Update, JSONPatch, MergePatch, Apply, UpdateStatus, PatchStatus}, v)
}

// OfLease tells whether a verb writes the lease and not an object.
func (v Verb) OfLease() bool { return v == Acquire || v == Renew || v == Release }

// Reads tells whether a verb changes nothing.
func (v Verb) Reads() bool { return v == Get || v == List }

// Carrier is how an operation presents its token.
type Carrier string

const (
	// Annotation is as an annotation of the object, or for a delete as a delete intent.
	Annotation Carrier = "annotation"
	// Extra is with the request, by impersonation of the caller itself.
	Extra Carrier = "extra"
	// Wrap is as Extra, by the library's client, which sends nothing after the term.
	Wrap Carrier = "wrap"
	// Credential is by a service-account token that was requested for the term.
	Credential Carrier = "credential"
	// None is not at all.
	None Carrier = "none"
)

// Carriers are all carriers.
func Carriers() []Carrier { return []Carrier{Annotation, Extra, Wrap, Credential, None} }

// LeaseRef names a FencedLease.
type LeaseRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (r LeaseRef) String() string { return r.Namespace + "/" + r.Name }

// Op is one call of one client.
type Op struct {
	// ID tells it from all others of the run. Each write puts it into the object, so that its commit is found.
	ID int64 `json:"id"`
	// Client is a stream of calls, one after the other.
	Client  string   `json:"client"`
	Lease   LeaseRef `json:"lease"`
	Object  string   `json:"object,omitempty"`
	Verb    Verb     `json:"verb"`
	Carrier Carrier  `json:"carrier,omitempty"`
	// Generation and Term are those that it presents.
	Generation int64  `json:"generation,omitempty"`
	Term       string `json:"term,omitempty"`
	// Operation is what its token names besides: a business operation or a nonce. It is empty if it presents no token, or one
	// that the library completes.
	Operation string `json:"operation,omitempty"`
	// Bare says that its token names no term, which is Term all the same.
	Bare bool `json:"bare,omitempty"`
	// Intent says that it only asks for the deletion of the object, which it may ask for already.
	Intent bool `json:"intent,omitempty"`
	// Ended says that the client knew that its term had ended.
	Ended bool `json:"ended,omitempty"`
	// Dropped says that the client did not wait for the answer, or threw it away.
	Dropped bool  `json:"dropped,omitempty"`
	Invoke  int64 `json:"invoke"`

	Return  int64   `json:"return"`
	Outcome Outcome `json:"outcome"`
	Code    int     `json:"code,omitempty"`
	// Cause is that of a refusal.
	Cause   string `json:"cause,omitempty"`
	Message string `json:"message,omitempty"`
	// Record is the record of the operation that a refusal names.
	Record string `json:"record,omitempty"`
	// Seen are the objects of the answer: what a write or a read returned, what a delete removed. It is nil for a read of
	// an object that does not exist.
	Seen []Seen `json:"seen,omitempty"`
}

// Seen is an object of an answer.
type Seen struct {
	Name     string `json:"name"`
	UID      string `json:"uid"`
	Revision int64  `json:"revision"`
}

// Event is a committed change of a guarded object or of a lease.
type Event struct {
	// Epoch counts the restores of the store before it. Revision is the store's in that epoch.
	Epoch    int   `json:"epoch"`
	Revision int64 `json:"revision"`
	// Initial says that it is not a change but what the epoch began with.
	Initial bool `json:"initial,omitempty"`
	// Observed is when the recorder learned of it: it was committed before.
	Observed int64 `json:"observed"`
	// Created says that the object did not exist before, Deleted that it is gone.
	Created   bool         `json:"created,omitempty"`
	Deleted   bool         `json:"deleted,omitempty"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	UID       string       `json:"uid,omitempty"`
	Object    *ObjectState `json:"object,omitempty"`
	Lease     *LeaseState  `json:"lease,omitempty"`
}

// ObjectState is what the checks need of a guarded object. Of one that is deleted it is the last state.
type ObjectState struct {
	// Marks are the tokens by the names of their leases.
	Marks map[string]string `json:"marks,omitempty"`
	// Operations are the records of applied operations by the names of their leases.
	Operations map[string]string `json:"operations,omitempty"`
	// Value, Result and Replicas are what writes of the object, of its status and of its scale put their ID into.
	Value    string `json:"value,omitempty"`
	Result   string `json:"result,omitempty"`
	Replicas int64  `json:"replicas,omitempty"`
	// Generation is metadata.generation.
	Generation int64 `json:"generation,omitempty"`
	// Managers are the field managers.
	Managers []string `json:"managers,omitempty"`
}

// LeaseState is what the checks need of a FencedLease.
type LeaseState struct {
	Generation       int64  `json:"generation"`
	Floor            int64  `json:"floor"`
	Term             string `json:"term"`
	Holder           string `json:"holder"`
	Handover         string `json:"handover"`
	Seal             string `json:"seal"`
	SealedGeneration int64  `json:"sealedGeneration"`
	// Ready says that its guards are in force.
	Ready bool `json:"ready"`
	// Conditions are the messages of those that are True, by type.
	Conditions map[string]string `json:"conditions,omitempty"`
}

// Epoch is the life of the store between two restores.
type Epoch struct {
	// Begin is a moment after all of the epoch before and before all of this one; 0 for the first.
	Begin int64 `json:"begin"`
	// Base is the revision that it began with; in the terms of the epoch before, Snapshot is the last revision that it
	// knows of.
	Base     int64 `json:"base"`
	Snapshot int64 `json:"snapshot"`
	// Cut is when the epoch before began to end: API servers were killed one after the other.
	Cut int64 `json:"cut"`
}

// Epoch returns the epoch in which an operation may have been carried out: a call ends with the API servers.
func (m Meta) Epoch(op *Op) int {
	epoch := 0
	for i := range m.Epochs {
		if op.Invoke >= m.Epochs[i].Begin {
			epoch = i
		}
	}
	return epoch
}

// Fault is something that was broken for a while.
type Fault struct {
	Kind   string `json:"kind"`
	Target string `json:"target"`
	Begin  int64  `json:"begin"`
	End    int64  `json:"end"`
	Detail string `json:"detail,omitempty"`
	// Effect says how it was seen that it took effect, empty if it was not.
	Effect string `json:"effect,omitempty"`
}

// Lease is a FencedLease of a run.
type Lease struct {
	LeaseRef
	// Handover is its spec's.
	Handover string `json:"handover"`
	// LateCreates is its spec's, empty for the default.
	LateCreates string `json:"lateCreates,omitempty"`
	// History is how many operations an object records for it.
	History int `json:"history,omitempty"`
	// Objects are the names of the guarded objects that clients write.
	Objects []string `json:"objects"`
	// Elsewhere is their namespace if it is not the lease's: the guard has a namespaceSelector then.
	Elsewhere string `json:"elsewhere,omitempty"`
}

// ObjectNamespace returns the namespace of the guarded objects.
func (l Lease) ObjectNamespace() string { return cmp.Or(l.Elsewhere, l.Namespace) }

// Meta says which run it was.
type Meta struct {
	Scenario string  `json:"scenario"`
	Seed     uint64  `json:"seed"`
	Leases   []Lease `json:"leases"`
	Epochs   []Epoch `json:"epochs"`
	// Begin and End are those of the traffic.
	Begin int64 `json:"begin"`
	End   int64 `json:"end"`
}

// Run is a whole history.
type Run struct {
	Meta   Meta
	Ops    []*Op
	Truth  []*Event
	Faults []Fault
}
