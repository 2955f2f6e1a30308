// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// maxReports bounds the leases of which something is reported and not yet acted on.
const maxReports = 1024

// Evidence says what showed a generation above a lease's. The values are a closed set: they label a metric.
type Evidence string

const (
	// EvidenceRequest is a token that a request carried.
	EvidenceRequest Evidence = "Request"
	// EvidenceMark is the mark of a guarded object.
	EvidenceMark Evidence = "Mark"
	// EvidenceStore is a lease that a replica had seen before the store went back.
	EvidenceStore Evidence = "Store"
)

// Evidences returns all kinds of evidence.
func Evidences() []Evidence { return []Evidence{EvidenceRequest, EvidenceMark, EvidenceStore} }

// Observed is a generation above that of a lease.
type Observed struct {
	Lease      types.NamespacedName
	Generation int64
	Evidence   Evidence
	// Object is the guarded object whose mark or review showed it, as <resource>.<group> <namespace>/<name>; or empty.
	Object string
}

// Reports takes what the webhook and the lease view of this replica have observed, until the controller has acted on it.
// Those of a lease that is gone are kept as well: they tell its successor of the same name where to begin.
type Reports struct {
	mu      sync.Mutex
	pending map[types.NamespacedName]sighting
	events  chan event.GenericEvent
}

// sighting is what is known of one lease.
type sighting struct {
	// generation is the highest plausible one, seen by evidence.
	generation int64
	evidence   Evidence
	// implausible is an object with an implausible mark, or empty.
	implausible string
}

// NewReports returns an empty Reports.
func NewReports() *Reports {
	return &Reports{pending: map[types.NamespacedName]sighting{}, events: make(chan event.GenericEvent, maxReports)}
}

// Report takes one observation. It never blocks. Implausible generations in requests are dropped: the webhook refuses
// them and nothing is stored.
func (r *Reports) Report(o Observed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, waiting := r.pending[o.Lease]
	if !waiting && len(r.pending) >= maxReports {
		return
	}
	switch implausible := o.Generation > token.MaxPlausibleGeneration; {
	case implausible && o.Evidence == EvidenceMark && seen.implausible == "":
		seen.implausible = o.Object
	case !implausible && o.Generation > seen.generation:
		seen.generation, seen.evidence = o.Generation, o.Evidence
	default:
		return
	}
	r.pending[o.Lease] = seen
	lease := &v1alpha1.FencedLease{ObjectMeta: metav1.ObjectMeta{Namespace: o.Lease.Namespace, Name: o.Lease.Name}}
	select {
	case r.events <- event.GenericEvent{Object: lease}:
	default:
		// Nobody listens on a replica that is not elected. The report waits: a newly elected one looks at every lease.
	}
}

// of returns what is reported of a lease.
func (r *Reports) of(key types.NamespacedName) sighting {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending[key]
}

// done drops a report that has been acted on, unless more has come since.
func (r *Reports) done(key types.NamespacedName, acted sighting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending[key] == acted {
		delete(r.pending, key)
	}
}
