// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"maps"
	"reflect"
)

// Change says how much of an object a write changes. The zero value is the one that opens nothing.
type Change int

const (
	// ChangeOther is any write that is not one of the others.
	ChangeOther Change = iota
	// ChangeOwnership is a write that changes owner references and finalizers only.
	ChangeOwnership
	// ChangeNothing is a write that leaves the object as it is, apart from managedFields.
	ChangeNothing
)

// CompareObjects says what differs between two states of one object, given as decoded JSON. Neither is changed.
func CompareObjects(before, after map[string]any) Change {
	if before == nil || after == nil {
		return ChangeOther
	}
	beforeMeta, beforeOK := before["metadata"].(map[string]any)
	afterMeta, afterOK := after["metadata"].(map[string]any)
	if !beforeOK || !afterOK {
		// Every stored object has metadata.
		return ChangeOther
	}
	if !equalWithout(before, after, "metadata") ||
		!equalWithout(beforeMeta, afterMeta, "managedFields", "resourceVersion", "ownerReferences", "finalizers") {
		return ChangeOther
	}
	if !equalWithout(beforeMeta, afterMeta, "managedFields", "resourceVersion") {
		return ChangeOwnership
	}
	return ChangeNothing
}

func equalWithout(a, b map[string]any, keys ...string) bool {
	a, b = maps.Clone(a), maps.Clone(b)
	for _, k := range keys {
		delete(a, k)
		delete(b, k)
	}
	return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b))
}
