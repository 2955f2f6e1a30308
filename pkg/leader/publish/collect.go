// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

// pageSize bounds how much of a list is in memory.
const pageSize = 500

// Collected says what a collection has found.
type Collected struct {
	// Deleted is how many staged objects were deleted, Kept how many were left: those that are referred to, and those of a
	// term that may still publish them.
	Deleted, Kept int
}

// Collect deletes the staged objects of the reference that can be referred to by nobody any more. Call it when the work of the
// term begins, so that no switch of an older term is committed from then on, and after each Publish. An object of an older
// term that lands after the list was read is collected the next time.
//
// It returns ErrNotGuarded, and deletes nothing, if the reference cannot be fenced.
func (p *Publisher) Collect(ctx context.Context) (Collected, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reference, err := p.fence(ctx)
	if err != nil {
		return Collected{}, err
	}
	staged, err := p.list(ctx)
	if err != nil {
		return Collected{}, err
	}
	// A staging is kept as a whole.
	referred := map[string]bool{}
	for _, s := range staged {
		if p.options.Refers(reference, s.object) {
			referred[s.from.staging] = true
		}
	}
	var found Collected
	var failed []error
	for _, s := range staged {
		if referred[s.from.staging] || !p.lost(s.from) {
			found.Kept++
			continue
		}
		if err := p.delete(ctx, s.object); err != nil {
			found.Kept++
			failed = append(failed, err)
			if fenced.IsFenced(err) {
				break // so would the others be
			}
			continue
		}
		found.Deleted++
	}
	return found, errors.Join(failed...)
}

// fence writes the reference under the term, and returns it as it is stored then. No switch of an older term is committed to it
// afterwards, as it has a newer mark, and none that is under way, as it has another resourceVersion than that is conditioned
// on. So the write must change something each time.
func (p *Publisher) fence(ctx context.Context) (client.Object, error) {
	reference, err := p.copy()
	if err != nil {
		return nil, err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, AnnotationFenced, rand.Text())
	if err := p.options.Client.Patch(ctx, reference, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return nil, fmt.Errorf("fence the reference %s: %w", p, err)
	}
	mark, err := p.mark(reference)
	if err == nil && mark.Possession() != p.possessed {
		err = p.notGuarded(mark.String())
	}
	return reference, err
}

// lost reports whether the origin of a staged object, which is not referred to, lets nobody publish it any more.
func (p *Publisher) lost(from origin) bool {
	if from.possession == p.possessed {
		return p.finished[from.staging]
	}
	// Of the same generation in another history, or of a newer one: this term is not the one to judge.
	return from.possession.Generation < p.possessed.Generation
}

// stagedObject is the metadata of a staged object.
type stagedObject struct {
	object *metav1.PartialObjectMetadata
	from   origin
}

func (p *Publisher) list(ctx context.Context) ([]stagedObject, error) {
	var staged []stagedObject
	for _, kind := range p.options.Kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind + "List"})
		options := []client.ListOption{client.MatchingLabels{LabelReference: p.reference}, client.Limit(pageSize)}
		mapping, err := p.options.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return nil, fmt.Errorf("find the resource of %s: %w", kind, err)
		}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			options = append(options, client.InNamespace(p.options.Namespace))
		}
		for {
			if err := p.options.Client.List(ctx, list, append(options, client.Continue(list.Continue))...); err != nil {
				return nil, fmt.Errorf("list staged %s: %w", kind.Kind, err)
			}
			for i := range list.Items {
				object := list.Items[i].DeepCopy()
				object.SetGroupVersionKind(kind)
				if from, ok := originOf(object); ok {
					staged = append(staged, stagedObject{object, from})
				}
			}
			if list.Continue == "" {
				break
			}
		}
	}
	return staged, nil
}

// delete deletes the very object that was judged, in the version that was judged.
func (p *Publisher) delete(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	if object.DeletionTimestamp != nil {
		return nil // its finalizers have the word
	}
	uid, version := object.UID, object.ResourceVersion
	err := p.options.Client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s: %w", object.Kind, client.ObjectKeyFromObject(object), err)
	}
	return nil
}
