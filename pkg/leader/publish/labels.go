// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"maps"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/pkg/token"
)

// The labels of staged objects. They tell a person what an object is, and the collector what may become of it.
const (
	// LabelLease is the name of the FencedLease.
	LabelLease = "staged.fencedlease.io/lease"
	// LabelReference tells the FencedLease and the reference that the object was staged for: a hash of both.
	LabelReference = "staged.fencedlease.io/reference"
	// LabelGeneration and LabelTerm are those of the term that has staged the object.
	LabelGeneration = "staged.fencedlease.io/generation"
	LabelTerm       = "staged.fencedlease.io/term"
	// LabelStaging is the id of the staging.
	LabelStaging = "staged.fencedlease.io/staging"

	// AnnotationReference names the reference, to a person.
	AnnotationReference = "staged.fencedlease.io/reference"
	// AnnotationFenced is on the reference. Each collection gives it another value, so that the write that fences the reference
	// always changes it.
	AnnotationFenced = "staged.fencedlease.io/fenced"
)

// origin is what the labels of a staged object say.
type origin struct {
	possession token.Token
	staging    string
}

// originOf reads the labels of an object. It is false for one that no publisher has staged like that.
func originOf(obj client.Object) (origin, bool) {
	labels := obj.GetLabels()
	generation, err := strconv.ParseInt(labels[LabelGeneration], 10, 64)
	if err != nil {
		return origin{}, false
	}
	possession, err := token.New(generation, labels[LabelTerm])
	if err != nil || possession.Term == "" || labels[LabelStaging] == "" {
		return origin{}, false
	}
	return origin{possession: possession, staging: labels[LabelStaging]}, true
}

// label returns the labels of an object that is staged, besides its own.
func (s *Staging) label(own map[string]string) map[string]string {
	p := s.publisher
	labels := map[string]string{}
	maps.Copy(labels, own)
	labels[LabelLease] = p.options.Possession.Lease().Name
	labels[LabelReference] = p.reference
	labels[LabelGeneration] = strconv.FormatInt(p.possessed.Generation, 10)
	labels[LabelTerm] = p.possessed.Term
	labels[LabelStaging] = s.id
	return labels
}
