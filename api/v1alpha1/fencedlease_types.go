// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Enforcement says what happens to a write that a guard refuses.
//
// +kubebuilder:validation:Enum=Enforce;Audit
type Enforcement string

const (
	// EnforcementEnforce refuses the write.
	EnforcementEnforce Enforcement = "Enforce"
	// EnforcementAudit admits the write, counts it, warns its client and annotates the audit log.
	EnforcementAudit Enforcement = "Audit"
)

// Handover says how a new holder takes the guarded objects over.
//
// +kubebuilder:validation:Enum=Lazy;Seal
type Handover string

const (
	// HandoverLazy protects each object from the new holder's first write to it on.
	HandoverLazy Handover = "Lazy"
	// HandoverSeal stamps every guarded object with the new generation before the new holder may write.
	HandoverSeal Handover = "Seal"
)

// Seal says whether a term must begin with a seal.
//
// +kubebuilder:validation:Enum=Required;NotRequired
type Seal string

const (
	// SealRequired means that the term's first write must wait for the seal.
	SealRequired Seal = "Required"
	// SealNotRequired means that the term needs no seal.
	SealNotRequired Seal = "NotRequired"
)

// LateCreates says what happens to a guarded object that was created under an ended term and appears after the seal of the
// next one.
//
// +kubebuilder:validation:Enum=Report;Delete
type LateCreates string

const (
	// LateCreatesReport leaves the object, stamps it with the current term, and reports it.
	LateCreatesReport LateCreates = "Report"
	// LateCreatesDelete deletes the object and reports it.
	LateCreatesDelete LateCreates = "Delete"
)

// FencedLease records who leads, under which generation, and which custom resources accept only the writes of the
// current holder.
//
// Policy is spec, possession is status: a worker needs no right on spec, and applying the manifest never touches the
// generation. The invariants of possession are rules of this schema, so they hold while no other component runs.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=fencedleases,scope=Namespaced,shortName=flease,categories=coordination
// +kubebuilder:printcolumn:name="Holder",type=string,JSONPath=`.status.holderIdentity`,description="Who holds the lease"
// +kubebuilder:printcolumn:name="Generation",type=integer,JSONPath=`.status.generation`,description="Grows with every change of holder"
// +kubebuilder:printcolumn:name="Renewed",type=date,JSONPath=`.status.renewTime`,description="When the holder last renewed"
// +kubebuilder:printcolumn:name="Sealed",type=string,JSONPath=`.status.conditions[?(@.type=="Sealed")].status`,description="Whether the term needs no seal or has been sealed"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the guards are in force"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",reason=FieldValueInvalid,fieldPath=".metadata",message="the name must have at most 63 characters, as it is part of the annotation key token.fencedlease.io/<name>: choose a shorter name"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || has(self.status)",reason=FieldValueForbidden,fieldPath=".status",message="status must not be removed, it records the generation: send the status unchanged"
// +kubebuilder:validation:XValidation:rule=`has(oldSelf.status) || !has(self.status) || (self.status.generation == 0 && self.status.term == "" && self.status.holderIdentity == "")`,reason=FieldValueForbidden,fieldPath=".status.generation",message="the first status sets generationFloor and holds no term: wait until the controller has set generationFloor, then acquire"
// +kubebuilder:validation:XValidation:rule="!has(self.status) || !has(oldSelf.status) || self.status.generationFloor >= oldSelf.status.generationFloor",reason=FieldValueForbidden,fieldPath=".status.generationFloor",message="status.generationFloor must not fall: read the lease again and keep at least its value"
// +kubebuilder:validation:XValidation:rule="!has(self.status) || !has(oldSelf.status) || (self.status.term == oldSelf.status.term ? self.status.generation == oldSelf.status.generation : self.status.generation == 1 + [oldSelf.status.generation, oldSelf.status.generationFloor, self.spec.minGeneration].max())",reason=FieldValueForbidden,fieldPath=".status.generation",message="status.generation changes only with a new term, to one above the largest of generation, generationFloor and spec.minGeneration: the term that was written has ended or the lease has changed, read it again"
// +kubebuilder:validation:XValidation:rule=`!has(self.status) || !has(oldSelf.status) || self.status.holderIdentity == oldSelf.status.holderIdentity || (self.status.holderIdentity == "") == (self.status.term == oldSelf.status.term)`,reason=FieldValueForbidden,fieldPath=".status.holderIdentity",message="status.holderIdentity is set with a new term and within a term can only be emptied: the term that was written has ended, read the lease again"
// +kubebuilder:validation:XValidation:rule=`!has(self.status) || !has(oldSelf.status) || self.status.term == oldSelf.status.term || self.status.holderIdentity != ""`,reason=FieldValueForbidden,fieldPath=".status.holderIdentity",message="a new status.term needs a status.holderIdentity: name the holder"
// +kubebuilder:validation:XValidation:rule=`!has(self.status) || (self.status.term == "" ? self.status.token == "" : self.status.token.endsWith('.' + self.status.term) && int(self.status.token.substring(0, self.status.token.indexOf('.'))) == self.status.generation)`,reason=FieldValueInvalid,fieldPath=".status.token",message="status.token must be <generation>.<term>, and empty while there is no term: write all three together"
// +kubebuilder:validation:XValidation:rule="!has(self.status) || !has(self.status.credentials) || self.status.credentials.all(c, c.term == self.status.term || (has(oldSelf.status) && has(oldSelf.status.credentials) && oldSelf.status.credentials.exists(o, o.id == c.id && o.term == c.term)))",reason=FieldValueForbidden,fieldPath=".status.credentials",message="a credential can be added for the current term only: the term that was written has ended, read the lease again"
// +kubebuilder:validation:XValidation:rule="!has(self.status) || self.status.sealedGeneration <= self.status.generation",reason=FieldValueInvalid,fieldPath=".status.sealedGeneration",message="status.sealedGeneration must not exceed status.generation: seal the current term"
// +kubebuilder:validation:XValidation:rule="!has(self.status) || !has(oldSelf.status) || self.status.sealedGeneration >= oldSelf.status.sealedGeneration",reason=FieldValueForbidden,fieldPath=".status.sealedGeneration",message="status.sealedGeneration must not fall: read the lease again and keep at least its value"
// +kubebuilder:validation:XValidation:rule="!has(self.status) || !has(oldSelf.status) || (self.status.term == oldSelf.status.term ? self.status.handover == oldSelf.status.handover && self.status.seal == oldSelf.status.seal : self.status.handover == self.spec.handover && self.status.seal == (self.spec.handover == 'Seal' || oldSelf.status.handover == 'Seal' || (oldSelf.status.seal == 'Required' && oldSelf.status.sealedGeneration != oldSelf.status.generation) ? 'Required' : 'NotRequired'))",reason=FieldValueForbidden,fieldPath=".status.seal",message="status.handover and status.seal are set at acquisition: handover is copied from spec, and seal is Required if the new or the ended term hands over by Seal or the ended term was never sealed; read the lease again"
type FencedLease struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard metadata of an object. The name must have at most 63 characters, as it is part of the
	// annotation key token.fencedlease.io/<name>.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the policy: how long a silent holder keeps the lease, and what is guarded. Operators write it.
	// +required
	Spec FencedLeaseSpec `json:"spec,omitzero"`

	// status is the possession: who holds the lease under which generation. Holders and the controller write it.
	// +optional
	Status FencedLeaseStatus `json:"status,omitzero"`
}

// FencedLeaseSpec is the policy of a FencedLease.
//
// +kubebuilder:validation:MinProperties=1
type FencedLeaseSpec struct {
	// leaseDurationSeconds is how long, in seconds, followers wait after the last renewal that they saw before they take
	// the lease from a silent holder. From 1 to 3600. Defaults to 15.
	// +optional
	// +default=15
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	LeaseDurationSeconds int32 `json:"leaseDurationSeconds,omitempty"`

	// enforcement is Enforce to refuse stale writes, or Audit to admit them and only count, warn and annotate the audit
	// log. Defaults to Enforce.
	// +optional
	// +default="Enforce"
	Enforcement Enforcement `json:"enforcement,omitempty"`

	// handover is how a new holder takes the guarded objects over: Lazy protects each object from the new holder's first
	// write to it on, Seal stamps all of them before the new holder may write. Defaults to Lazy.
	// +optional
	// +default="Lazy"
	Handover Handover `json:"handover,omitempty"`

	// lateCreates is what happens to a guarded object that was created under an ended term and appears only after the seal of
	// the next one has begun, as no API can hold back a create that is under way: Report leaves and reports it, Delete
	// deletes it as well. Only terms that begin with a seal find such objects. Defaults to Report.
	// +optional
	// +default="Report"
	LateCreates LateCreates `json:"lateCreates,omitempty"`

	// minGeneration is a floor for generations, from 0 to 10^15: the next acquisition starts above it. Raise it after a
	// restore that lost generations. Lowering it takes no generation back. Defaults to 0.
	// +optional
	// +default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000000
	MinGeneration *int64 `json:"minGeneration,omitempty"`

	// guards are the resources that accept only writes of the current holder. At most 16. Without guards the lease only
	// hands out generations.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Guards []Guard `json:"guards,omitempty"`
}

// Guard names custom resources that accept only writes of the lease's current holder.
type Guard struct {
	// apiGroups are the API groups of the guarded custom resources, in all of their versions. From 1 to 8 names. Built-in
	// groups, aggregated APIs, this group and * cannot be guarded.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=3
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`
	APIGroups []string `json:"apiGroups,omitempty"`

	// resources are the plural names of the guarded resources. A bare name leaves the subresources open: add
	// <resource>/status and <resource>/scale, or write <resource>/* for the resource with all of them. From 1 to 16 names.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=80
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(/(status|scale|[*]))?$`
	Resources []string `json:"resources,omitempty"`

	// objectSelector limits the guard to objects whose labels match, before or after the write. Absent or empty means all
	// objects. A writer that may change labels can move an object out of the guard only with a write that the guard
	// accepts.
	// +optional
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// namespaceSelector extends the guard to all namespaces whose labels match, and to cluster-scoped resources; an empty
	// selector means all of them. Absent means the lease's own namespace only. Setting it needs the verb guard-cluster on
	// fencedleases. The namespaces kube-system and that of the manager are never guarded.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// operationHistoryLimit is how many business operations a guarded object records, the newest ones: a write that presents
	// one of them again is refused. If several guards of the lease name the resource, the largest limit counts, whatever
	// their objectSelectors select. From 0, which records nothing more, to 128. Absent means 32.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	OperationHistoryLimit *int32 `json:"operationHistoryLimit,omitempty"`

	// subjects are the users, groups and service accounts whose writes must present a token; writes of others pass
	// without one, unless they present one. Absent means that everybody must present a token. At most 32.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Subjects []Subject `json:"subjects,omitempty"`
}

// SubjectKind is the kind of a Subject.
//
// +kubebuilder:validation:Enum=User;Group;ServiceAccount
type SubjectKind string

const (
	// SubjectUser is a user by its name.
	SubjectUser SubjectKind = "User"
	// SubjectGroup is a group of users by its name.
	SubjectGroup SubjectKind = "Group"
	// SubjectServiceAccount is a service account by its name and namespace.
	SubjectServiceAccount SubjectKind = "ServiceAccount"
)

// Subject is a user, a group or a service account, as in RBAC.
//
// +kubebuilder:validation:XValidation:rule="self.kind == 'ServiceAccount' || !has(self.__namespace__)",reason=FieldValueForbidden,fieldPath=".namespace",message="namespace is for the kind ServiceAccount only: remove it"
type Subject struct {
	// kind is User, Group or ServiceAccount.
	// +required
	Kind SubjectKind `json:"kind,omitempty"`

	// name is the name of the user, group or service account.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// namespace is the namespace of a service account. Defaults to the lease's own namespace. Not allowed for users and
	// groups.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// Credential is a service-account token that was requested for a term.
type Credential struct {
	// id is the credential id that the API server reports for the token, JTI=<uuid>.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id,omitempty"`

	// term is the term that the token was requested for.
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:Pattern=`^[a-z0-9]{8}$`
	Term string `json:"term,omitempty"`
}

// FencedLeaseStatus is the possession of a FencedLease. It exists from the moment the controller has set generationFloor.
// All fields that record the possession are then required, so that none can be dropped.
type FencedLeaseStatus struct {
	// generation grows with every change of holder and is never reused. 0 means that the lease was never held. The holder
	// sets it at acquisition.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=999999999999999999
	Generation *int64 `json:"generation,omitempty"`

	// term is the random id of the current possession, eight characters of a-z and 0-9, or empty if the lease was never
	// held. The holder sets it at acquisition.
	// +required
	// +kubebuilder:validation:MinLength=0
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:Pattern=`^([a-z0-9]{8})?$`
	Term *string `json:"term,omitempty"`

	// token is what a writer presents: <generation>.<term>, or empty if the lease was never held.
	// +required
	// +kubebuilder:validation:MinLength=0
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,18}[.][a-z0-9]{8})?$`
	Token *string `json:"token,omitempty"`

	// holderIdentity is who holds the lease, or empty after a release.
	// +required
	// +kubebuilder:validation:MinLength=0
	// +kubebuilder:validation:MaxLength=253
	HolderIdentity *string `json:"holderIdentity,omitempty"`

	// acquireTime is when the current term began, by the holder's clock.
	// +optional
	AcquireTime *metav1.MicroTime `json:"acquireTime,omitempty"`

	// renewTime is when the holder last renewed, by the holder's clock. Followers watch it change and never compare it
	// with their own clock.
	// +optional
	RenewTime *metav1.MicroTime `json:"renewTime,omitempty"`

	// generationFloor is the generation that the next acquisition must exceed. The controller sets it on a new lease and
	// raises it when it sees a generation above the lease's.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000000
	GenerationFloor *int64 `json:"generationFloor,omitempty"`

	// handover is the strategy of the current term, copied from spec at acquisition.
	// +required
	Handover Handover `json:"handover,omitempty"`

	// seal says whether the current term must begin with a seal. The holder sets it at acquisition.
	// +required
	Seal Seal `json:"seal,omitempty"`

	// sealedGeneration is the last generation that every guarded object was stamped with. While it equals generation, no write
	// under an older generation is committed to a guarded object, but for late creates. The controller sets it.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=999999999999999999
	SealedGeneration *int64 `json:"sealedGeneration,omitempty"`

	// credentials are the service-account tokens that were requested for terms: a write made with one presents the token
	// of its term. At most 8; holders add theirs and drop the oldest.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Credentials []Credential `json:"credentials,omitempty"`

	// observedGeneration is the metadata.generation that the controller last acted on.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, Held, Sealed, LateCreate, GenerationBehind and ImplausibleMark. The controller sets them.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=0
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FencedLeaseList is a list of FencedLeases.
//
// +kubebuilder:object:root=true
type FencedLeaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []FencedLease `json:"items"`
}
