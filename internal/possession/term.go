// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package possession

import (
	"crypto/rand"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// Term is one possession of a FencedLease. It is a plain value: it stays what it is after the term has ended.
type Term struct {
	// Namespace and Name are those of the FencedLease.
	Namespace, Name string
	// UID is the uid of the FencedLease. A lease that was deleted and created anew has another.
	UID types.UID
	// Generation is the generation of the possession. It grows with every change of holder and is never reused.
	Generation int64
	// ID is the random id of the possession, eight characters of a-z and 0-9.
	ID string
	// Holder is the identity that holds the lease in this term.
	Holder string
	// AcquireTime is when the term began, by the elector's clock.
	AcquireTime time.Time
	// ResourceVersion is that of the FencedLease right after the acquisition.
	ResourceVersion string
	// Seal says whether guarded objects were to be stamped before the term's first write.
	Seal v1alpha1.Seal
}

// Token returns what a writer of this term presents, without an operation.
func (t Term) Token() token.Token { return token.Token{Generation: t.Generation, Term: t.ID} }

// TokenKey returns the annotation key, and the key of userInfo.extra, under which a writer presents the token.
func (t Term) TokenKey() string { return v1alpha1.TokenKey(t.Name) }

const termAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"

// NewTermID returns a random id. Bytes that would favour some characters are thrown away.
func NewTermID() string {
	const fair = 256 / len(termAlphabet) * len(termAlphabet)
	id := make([]byte, 0, token.TermLength)
	var random [2 * token.TermLength]byte
	for len(id) < token.TermLength {
		_, _ = rand.Read(random[:]) // never returns an error
		for _, b := range random {
			if int(b) < fair && len(id) < token.TermLength {
				id = append(id, termAlphabet[int(b)%len(termAlphabet)])
			}
		}
	}
	return string(id)
}
