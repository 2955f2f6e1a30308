// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"regexp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// The texts of the policy of marks, fencedlease-marks, behind what the API server puts before them. They are part of the
// policy's contract with this package: the tests that run against the API server hold both together.
var (
	policyRefusal = regexp.MustCompile(`(?s)ValidatingAdmissionPolicy 'fencedlease-marks' with binding '[^']*' denied request: (.*)$`)

	markFalls = regexp.MustCompile(`(?s)^the mark ` + markKey + ` must not fall or vanish: the object carries \S+, ` +
		`the write (?:(removes it)|sets (.*?)): a later write than the one this is based on`)
	severalTokens = regexp.MustCompile(`^the request carries \d+ values of ` + markKey + `: `)
	recordChanges = regexp.MustCompile(`^the record of operations ` + regexp.QuoteMeta(v1alpha1.OperationsPrefix) + `([^:\s]+) must stay as it is stored: `)
	// These stand in where the policy could not name the mark.
	someMarkFalls = regexp.MustCompile(`^a mark \(annotation `)
	someTokens    = regexp.MustCompile(`^a request must carry one token`)
	someRecord    = regexp.MustCompile(`^the record of operations \(annotation `)
)

// markKey matches the key of a mark and captures the name of its lease.
var markKey = regexp.QuoteMeta(v1alpha1.TokenPrefix) + `([^:\s]+)`

// refusalOfPolicy reads a refusal by the policy of marks, which knows no reasons of its own, from its message. It leaves
// out what is no refusal: an expression that the API server could not evaluate.
func refusalOfPolicy(message string) (Refusal, bool) {
	m := policyRefusal.FindStringSubmatch(message)
	if m == nil {
		return Refusal{}, false
	}
	text := m[1]
	if m := markFalls.FindStringSubmatch(text); m != nil {
		refusal := Refusal{Type: MalformedToken, Lease: types.NamespacedName{Name: m[1]}, Message: text}
		if m[2] != "" {
			refusal.Type = MarkTampered
		} else if _, err := token.Parse(m[3]); err == nil {
			refusal.Type = StaleToken
		}
		return refusal, true
	}
	if m := severalTokens.FindStringSubmatch(text); m != nil {
		return Refusal{Type: MalformedToken, Lease: types.NamespacedName{Name: m[1]}, Message: text}, true
	}
	if m := recordChanges.FindStringSubmatch(text); m != nil {
		return Refusal{Type: RecordTampered, Lease: types.NamespacedName{Name: m[1]}, Message: text}, true
	}
	switch {
	case someMarkFalls.MatchString(text):
		return Refusal{Type: MarkTampered, Message: text}, true
	case someTokens.MatchString(text):
		return Refusal{Type: MalformedToken, Message: text}, true
	case someRecord.MatchString(text):
		return Refusal{Type: RecordTampered, Message: text}, true
	default:
		return Refusal{}, false
	}
}
