// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"maps"
	"reflect"
)

// Change says how much of an object a write changes. Larger values include the smaller ones.
type Change int

const (
	// ChangeNothing is a write that leaves the object as it is, apart from managedFields.
	ChangeNothing Change = iota
	// ChangeOwnership is a write that changes owner references and finalizers only.
	ChangeOwnership
	// ChangeOther is any other write.
	ChangeOther
)

// CompareObjects says what differs between two states of one object, given as decoded JSON. Neither is changed.
func CompareObjects(before, after map[string]any) Change {
	if before == nil || after == nil {
		return ChangeOther
	}
	beforeMeta, _ := before["metadata"].(map[string]any)
	afterMeta, _ := after["metadata"].(map[string]any)
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
