// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcelock

import "github.com/fencedlease/fencedlease/internal/possession"

// Term is one possession of a FencedLease. It is a plain value: it stays what it is after the term has ended. Its fields are
// the Namespace, Name and UID of the FencedLease, the Generation and ID of the possession, its Holder and AcquireTime by
// the elector's clock, the ResourceVersion of the FencedLease right after the acquisition, and Seal, which says whether
// guarded objects were to be stamped before the term's first write. Token returns what its writers present, TokenKey under
// which key.
type Term = possession.Term
