// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import "github.com/fencedlease/fencedlease/api/v1alpha1"

// Separator stands between the key of a mark and its token in the field manager of a stamp.
const Separator = "="

// FieldManager returns the field manager of a stamp: the annotation's key and the token, which the stamping policy turns into
// the mark. A stamp changes nothing by itself, so this manager never owns a field. It has at most the 128 characters that are
// allowed, as a lease's name has at most 63, and a token without an operation 27.
func FieldManager(leaseName, token string) string {
	return v1alpha1.TokenKey(leaseName) + Separator + token
}
