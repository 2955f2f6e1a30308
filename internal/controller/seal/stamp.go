// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

const (
	// patience is the number of conflicts after which a stamp is conditioned on the object's uid alone. The API server then
	// repeats it by itself until it is committed, so that no other writer can keep a seal waiting. The policies keep a mark
	// of the same term or above as it is also then. The intent to delete is always conditioned on the version: it must not
	// cover the mark of a holder who has taken the object over.
	patience = 2
	// attempts bounds what is tried for one object before its failure is reported.
	attempts = 8
)

// errGone means that the object to be stamped is not there any more, which is as good as a stamp.
var errGone = errors.New("the object is gone")

// errNotMarked means that a stamp was committed and is no mark.
var errNotMarked = errors.New("the stamping policy did not work on it")

// judgement is what a mark says about an object, seen from a term.
type judgement int

const (
	// unmarked: no mark, or text that is none.
	unmarked judgement = iota
	// older: a mark under an older generation.
	older
	// other: one of another term under the same generation, or of none.
	other
	// current: one of the term.
	current
	// above: one under a newer generation. No older write can be committed over it.
	above
)

func judge(mark string, term token.Token) (judgement, token.Token) {
	stored, err := token.Parse(mark)
	switch {
	case err != nil:
		return unmarked, token.Token{}
	case stored.Generation < term.Generation:
		return older, stored
	case stored.Generation > term.Generation:
		return above, stored
	case stored.Term != term.Term:
		return other, stored
	default:
		return current, stored
	}
}

// mark returns the text of the object's mark.
func (s *session) mark(object *metav1.PartialObjectMetadata) string {
	return object.Annotations[v1alpha1.TokenKey(s.order.Lease.Name)]
}

// needsStamp judges an object, and reports a mark above the lease's generation.
func (s *session) needsStamp(t Target, object *metav1.PartialObjectMetadata) (bool, judgement) {
	verdict, stored := judge(s.mark(object), s.order.Token)
	if verdict == above {
		s.sealer.options.Above(s.order.Lease, stored.Generation, describe(t, object))
	}
	return verdict < current, verdict
}

// stamp marks one object with the token, unless it carries the term's mark or a newer one. It returns the object as it was
// left, or errGone. The object may have been read long ago: a stamp is conditioned on its version.
func (s *session) stamp(ctx context.Context, t Target, object *metav1.PartialObjectMetadata, mark token.Token) (*metav1.PartialObjectMetadata, error) {
	objects := t.in(s.sealer.options.Objects, object.Namespace)
	options := metav1.PatchOptions{FieldManager: FieldManager(s.order.Lease.Name, mark.String())}
	resource := t.Resource.GroupResource()
	for attempt := range attempts {
		written, err := objects.Patch(ctx, object.Name, types.MergePatchType, condition(object, attempt >= patience && mark.Operation == ""), options)
		var refused error
		switch {
		case err == nil:
			if verdict, _ := judge(s.mark(written), s.order.Token); verdict < current {
				return nil, fmt.Errorf("stamp %s: %w", describe(t, object), errNotMarked)
			}
			s.sealer.options.Metrics.stamped(stampWritten)
			return written, nil
		case apierrors.IsNotFound(err):
			s.sealer.options.Metrics.stamped(stampGone)
			return nil, errGone
		case apierrors.IsConflict(err):
			s.sealer.options.Metrics.stamped(stampConflict)
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
			// The mark policy refuses to lower a mark that has risen since, and another object of the name has another uid.
			refused = s.explained(err, "patch", resource)
		default:
			return nil, fmt.Errorf("stamp %s: %w", describe(t, object), err)
		}
		// From the API server, linearizable.
		now, err := objects.Get(ctx, object.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && now.UID != object.UID:
			// One that was created since is seen by the watch.
			return nil, errGone
		case err != nil && refused != nil:
			return nil, fmt.Errorf("stamp %s: %w", describe(t, object), refused)
		case err != nil:
			return nil, s.explained(err, "get", resource)
		}
		needed, _ := s.needsStamp(t, now)
		switch {
		case !needed:
			return now, nil
		case refused != nil:
			return nil, fmt.Errorf("stamp %s: %w", describe(t, object), refused)
		}
		object = now
	}
	return nil, fmt.Errorf("stamp %s: it changed %d times in between", describe(t, object), attempts)
}

// condition returns the patch of a stamp: it changes nothing, and is conditioned on the version, or on the uid alone.
func condition(object *metav1.PartialObjectMetadata, uidOnly bool) []byte {
	fields := map[string]string{"resourceVersion": object.ResourceVersion}
	if uidOnly {
		fields = map[string]string{"uid": string(object.UID)}
	}
	// A map of strings can always be written.
	patch, _ := json.Marshal(map[string]any{"metadata": fields}) //nolint:errchkjson // see above
	return patch
}

// describe names an object as <resource>.<group> <namespace>/<name>.
func describe(t Target, object *metav1.PartialObjectMetadata) string {
	return t.Resource.GroupResource().String() + " " + types.NamespacedName{Namespace: object.Namespace, Name: object.Name}.String()
}
