// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package leaseview

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// wentBack reports whether read, seen on a linearizable read that was started after cached was known, proves that the
// store has gone back in time. Both are leases of one name.
//
// The resourceVersion of a name never falls, also not over deletion and re-creation. A restore may raise the revision, so
// that a write after it hides the fall; then what never falls in the life of one object tells.
func wentBack(cached, read *v1alpha1.FencedLease) bool {
	// An unreadable resourceVersion proves nothing.
	if c, err := resourceversion.CompareResourceVersion(read.ResourceVersion, cached.ResourceVersion); err == nil && c < 0 {
		return true
	}
	if read.UID != cached.UID {
		return false
	}
	was, is := &cached.Status, &read.Status
	if read.Generation < cached.Generation ||
		ptr.Deref(is.Generation, 0) < ptr.Deref(was.Generation, 0) ||
		ptr.Deref(is.GenerationFloor, 0) < ptr.Deref(was.GenerationFloor, 0) ||
		ptr.Deref(is.SealedGeneration, 0) < ptr.Deref(was.SealedGeneration, 0) {
		return true
	}
	// One generation has one term. Two of them mean that a generation was handed out again after a restore.
	return ptr.Deref(is.Generation, 0) == ptr.Deref(was.Generation, 0) && ptr.Deref(is.Term, "") != ptr.Deref(was.Term, "")
}
