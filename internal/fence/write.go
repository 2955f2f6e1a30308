// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"slices"
	"strings"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// Operation is what a request does, in the words of an AdmissionReview.
type Operation string

// The operations that can reach the decision.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// The subresources of a custom resource; the main resource is the empty string.
const (
	SubresourceMain   = ""
	SubresourceStatus = "status"
	SubresourceScale  = "scale"
)

// Object is what the decision needs to know of one state of a guarded object.
type Object struct {
	// Annotations are the object's annotations. In a status write they are those of the request, which the API server
	// drops; in a scale write they are those of the stored object, in both states.
	Annotations map[string]string
	// Terminating says that the object has a deletion time.
	Terminating bool
	// Finalizers is the number of the object's finalizers.
	Finalizers int
}

// Writer is who makes the request.
type Writer struct {
	// Username is the authenticated, or impersonated, user.
	Username string
	// Groups are the user's groups.
	Groups []string
	// Extra is userInfo.extra, which carries tokens and override reasons with the request, and tells the credential that
	// the request was made with.
	Extra map[string][]string
}

// Write is one request to a guarded object.
type Write struct {
	// Operation is what the request does.
	Operation Operation
	// Subresource is empty, status or scale.
	Subresource string
	// Old is the stored state that the commit is conditioned on; nil on create.
	Old *Object
	// New is the state to be stored; nil on delete.
	New *Object
	// Writer is who makes the request.
	Writer Writer
	// Change says what differs between the old and the new object.
	Change Change
	// System says which system writers are known.
	System SystemWriters
	// Override says whether the writer asks, and may ask, to pass without a token.
	Override Override
}

// Override is a request to let a write without a token pass.
type Override struct {
	// Reason is what the request gives as its reason; empty means that it asks for nothing. See OverrideReason.
	Reason string
	// Permitted says that the writer has the verb bypass on the lease.
	Permitted bool
}

// SystemWriters are the users of the control plane that write guarded objects without a token.
type SystemWriters struct {
	// Collectors delete objects and change owner references and finalizers: the garbage collector and the namespace
	// controller.
	Collectors []string
	// Migrators write unchanged objects: the storage version migrator.
	Migrators []string
}

// DefaultSystemWriters returns the users of a control plane whose controller manager uses a credential per controller
// (as kubeadm sets it up), and of one that uses a single credential.
func DefaultSystemWriters() SystemWriters {
	const shared = "system:kube-controller-manager"
	return SystemWriters{
		Collectors: []string{
			"system:serviceaccount:kube-system:generic-garbage-collector",
			"system:serviceaccount:kube-system:namespace-controller",
			shared,
		},
		Migrators: []string{
			"system:serviceaccount:kube-system:storage-version-migrator-controller",
			shared,
		},
	}
}

// Knows reports whether a user is one of the system writers.
func (s SystemWriters) Knows(username string) bool {
	return slices.Contains(s.Collectors, username) || slices.Contains(s.Migrators, username)
}

// harmless reports whether the write is one that a system writer makes without a token: recognised by user and by
// change, so that neither alone opens the fence. key is that of the mark, which nobody moves without a token, whatever
// the change is said to be.
func (s SystemWriters) harmless(w Write, key string) bool {
	collector := slices.Contains(s.Collectors, w.Writer.Username)
	migrator := slices.Contains(s.Migrators, w.Writer.Username)
	switch {
	case w.Operation == Delete && w.Subresource == SubresourceMain:
		return collector
	case w.Operation == Update && w.Subresource == SubresourceMain && keepsAnnotation(w, key):
		return collector && w.Change == ChangeOwnership || (collector || migrator) && w.Change == ChangeNothing
	default:
		return false
	}
}

// keepsAnnotation reports whether an update leaves an annotation as it is stored, or absent.
func keepsAnnotation(w Write, key string) bool {
	before, had := w.Old.Annotations[key]
	after, has := w.New.Annotations[key]
	return had == has && before == after
}

// OverrideReason returns the reason with which a write asks to pass a lease's fence without a token: one value in the
// request's extra, or a changed annotation. It returns the empty string where the write asks for nothing or gives no reason.
func OverrideReason(w Write, leaseName string) string {
	key := v1alpha1.OverrideKey(leaseName)
	if values := w.Writer.Extra[key]; len(values) == 1 {
		return strings.TrimSpace(values[0])
	}
	if value, changed := changedAnnotation(w, key); changed {
		return strings.TrimSpace(value)
	}
	return ""
}

// changedAnnotation returns an annotation of the new state if the request sets it to another value than the stored one.
// An unchanged annotation was inherited from the stored object and says nothing about the request.
func changedAnnotation(w Write, key string) (value string, changed bool) {
	if w.New == nil {
		return "", false
	}
	value, there := w.New.Annotations[key]
	if !there {
		return "", false
	}
	if w.Old != nil {
		if before, had := w.Old.Annotations[key]; had && before == value {
			return "", false
		}
	}
	return value, true
}

// finalDelete reports whether the write is an update that leaves a terminating object without finalizers. The API server
// deletes the object right after it, without another admission. Writes of a subresource keep the stored finalizers.
func (w Write) finalDelete() bool {
	if w.Operation != Update || w.Old == nil || w.New == nil || !w.Old.Terminating {
		return false
	}
	if w.Subresource != SubresourceMain {
		return w.Old.Finalizers == 0
	}
	return w.New.Finalizers == 0
}
