// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fencedlease/fencedlease/internal/fence"
)

// review is a decoded AdmissionReview: the write to be judged, and what tells which guards match it.
type review struct {
	write fence.Write

	resource    schema.GroupVersionResource
	subresource string
	namespace   string
	name        string
	dryRun      bool
	// oldLabels and newLabels are nil where the review shows no such state.
	oldLabels, newLabels labels.Set
	// storedVersion is the resourceVersion of the old object, empty on create; basedOn is that of the new one.
	storedVersion, basedOn string
}

// outdated reports whether a status write names another version than the stored one. The mutating phase, in which it is
// judged, comes before the API server compares versions: such a write can only end in a conflict, and the annotations
// that it sends back are those of an older version.
func (r *review) outdated() bool {
	return r.subresource == fence.SubresourceStatus && r.basedOn != "" && r.basedOn != r.storedVersion
}

// state is the part of an object that a review reads. Fields are matched by their exact names, as the API server does.
type state struct {
	Metadata stateMetadata `json:"metadata"`
}

// stateMetadata leaves out what no verdict depends on, above all managedFields, which are often the larger part of an
// object.
type stateMetadata struct {
	Name              string            `json:"name"`
	ResourceVersion   string            `json:"resourceVersion"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
	Finalizers        []string          `json:"finalizers"`
}

// decode reads a review. It returns an error for one that the API server does not send.
func decode(req admission.Request, system fence.SystemWriters) (*review, error) {
	if req.UID == "" || req.Resource.Resource == "" {
		return nil, errors.New("the review holds no request with a uid and a resource")
	}
	r := &review{
		resource: schema.GroupVersionResource{
			Group: req.Resource.Group, Version: req.Resource.Version, Resource: req.Resource.Resource,
		},
		subresource: req.SubResource,
		namespace:   req.Namespace,
		name:        req.Name,
		dryRun:      req.DryRun != nil && *req.DryRun,
		write: fence.Write{
			Operation:   fence.Operation(req.Operation),
			Subresource: req.SubResource,
			Writer:      writerOf(req),
			Change:      fence.ChangeOther,
			System:      system,
		},
	}
	before, err := decodeState(req.OldObject.Raw)
	if err != nil {
		return nil, fmt.Errorf("decode oldObject: %w", err)
	}
	after, err := decodeState(req.Object.Raw)
	if err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	if before != nil {
		r.write.Old, r.oldLabels = objectOf(before), labelsOf(before)
		r.storedVersion = before.Metadata.ResourceVersion
	}
	if after != nil {
		r.write.New, r.newLabels = objectOf(after), labelsOf(after)
		r.basedOn = after.Metadata.ResourceVersion
	}
	// A deletecollection names no object, and a create with generateName has its name in the object only.
	for _, s := range []*state{before, after} {
		if r.name == "" && s != nil {
			r.name = s.Metadata.Name
		}
	}
	if system.Knows(r.write.Writer.Username) && before != nil && after != nil {
		if r.write.Change, err = compare(req.OldObject.Raw, req.Object.Raw); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func writerOf(req admission.Request) fence.Writer {
	extra := make(map[string][]string, len(req.UserInfo.Extra))
	for k, v := range req.UserInfo.Extra {
		extra[k] = v
	}
	return fence.Writer{Username: req.UserInfo.Username, Groups: req.UserInfo.Groups, Extra: extra}
}

func decodeState(raw []byte) (*state, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil //nolint:nilnil // an absent object is not an error, and nil says so
	}
	s := &state{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, err
	}
	return s, nil
}

func objectOf(s *state) *fence.Object {
	return &fence.Object{
		Annotations: s.Metadata.Annotations,
		Terminating: s.Metadata.DeletionTimestamp != nil,
		Finalizers:  len(s.Metadata.Finalizers),
	}
}

// labelsOf returns the labels, never nil: no labels are a state, too, which an empty selector matches.
func labelsOf(s *state) labels.Set {
	if s.Metadata.Labels == nil {
		return labels.Set{}
	}
	return s.Metadata.Labels
}

func compare(before, after []byte) (fence.Change, error) {
	var a, b map[string]any
	if err := json.Unmarshal(before, &a); err != nil {
		return fence.ChangeOther, fmt.Errorf("decode oldObject: %w", err)
	}
	if err := json.Unmarshal(after, &b); err != nil {
		return fence.ChangeOther, fmt.Errorf("decode object: %w", err)
	}
	return fence.CompareObjects(a, b), nil
}

// showStored replaces the two Scale objects of a scale write, which show neither annotations nor labels, by the stored
// object that they belong to.
func (r *review) showStored(stored *metav1.PartialObjectMetadata) {
	s := &state{Metadata: stateMetadata{
		Name: stored.Name, ResourceVersion: stored.ResourceVersion, Labels: stored.Labels, Annotations: stored.Annotations,
		DeletionTimestamp: stored.DeletionTimestamp, Finalizers: stored.Finalizers,
	}}
	r.write.Old, r.write.New = objectOf(s), objectOf(s)
	r.oldLabels, r.newLabels = labelsOf(s), labelsOf(s)
}

// operationLabel returns the operation as a metric label.
func (r *review) operationLabel() string {
	switch admissionv1.Operation(r.write.Operation) {
	case admissionv1.Create:
		return "create"
	case admissionv1.Update:
		return "update"
	case admissionv1.Delete:
		return "delete"
	case admissionv1.Connect:
		return otherLabel
	default:
		return otherLabel
	}
}

// subresourceLabel returns the subresource as a metric label.
func (r *review) subresourceLabel() string {
	switch r.subresource {
	case fence.SubresourceMain:
		return "main"
	case fence.SubresourceStatus, fence.SubresourceScale:
		return r.subresource
	default:
		return otherLabel
	}
}
