// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// derivedLength is the length of the part of a derived name that follows from the operation: 120 bits, so that nobody meets
// two operations with one name.
const derivedLength = 24

// nameByOperation gives an object that is to be created with generateName the name that follows from the operation: the
// prefix, cut so that the name is at most 63 characters long, and the beginning of the hash of the prefix and the
// operations with their leases. It reports whether it did.
//
// The same operation finds the object under that name again, whoever leads. A random name would make another object.
func nameByOperation(obj client.Object, marks []mark) bool {
	prefix, presented := obj.GetGenerateName(), operationsIn(marks)
	if obj.GetName() != "" || prefix == "" || len(presented) == 0 {
		return false
	}
	parts := make([]string, 0, len(presented))
	for _, m := range presented {
		parts = append(parts, m.lease.String()+"\x00"+m.operation.id)
	}
	slices.Sort(parts)
	sum := sha256.Sum256([]byte(strings.Join(append(parts, prefix), "\x00")))
	digest := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:derivedLength]
	obj.SetName(prefix[:min(len(prefix), validation.DNS1123LabelMaxLength-derivedLength)] + digest)
	return true
}
