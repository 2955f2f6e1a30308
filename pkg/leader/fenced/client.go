// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// Client returns a client whose writes present the token of a possession as an annotation of the objects that its guards
// name, each with an operation of its own. Writes of other objects pass as they are. Every write is refused with an
// *EndedError once the possession has ended.
//
// A write of a guarded object that no annotation can be added to is refused with a *CannotStampError: DeleteAllOf, the
// subresource scale, and patches of unknown kinds. Delete takes two requests: a patch that writes the intent into the
// annotation, and the delete on condition that nothing was written in between; a dry run sends the patch only. Apply owns
// the annotation, so it needs ForceOwnership where another field manager wrote it before.
//
// Objects that are passed in hold the server's answer afterwards. If the call fails, their annotations are what they were.
//
// For objects that several leases guard, the client is given to Client once for each, with nothing in between.
//
// A write with a context of WithOperation presents its operation. If that was applied to the object before, create, update,
// patch and apply change nothing, put the object as it is stored into the caller's, and return nil; Operation.Replayed tells
// it. A write of a status answers with an error, see AlreadyAppliedRecord: the record says nothing about the status. A delete
// presents no operation; it needs the object's uid, and answers NotFound once the object of that uid is gone. Of objects with
// generateName the name follows from the operation.
func Client(c client.Client, possession Possession, opts ...ClientOption) client.Client {
	fc := &fencedClient{inner: c, reader: c, stampers: []*stamper{newStamper(possession)}}
	if f, ok := c.(*fencedClient); ok {
		fc.inner, fc.reader, fc.stampers = f.inner, f.reader, append(slices.Clone(f.stampers), fc.stampers...)
	}
	for _, option := range opts {
		option(fc)
	}
	return fc
}

// fencedClient names every method of client.Client itself, so that none is ever passed on unseen.
type fencedClient struct {
	inner client.Client
	// reader reads objects to which an operation was applied before.
	reader   client.Reader
	stampers []*stamper
}

var _ client.Client = &fencedClient{}

// Get reads as the client below does.
func (c *fencedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.inner.Get(ctx, key, obj, opts...)
}

// List reads as the client below does.
func (c *fencedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.inner.List(ctx, list, opts...)
}

// Scheme returns that of the client below.
func (c *fencedClient) Scheme() *runtime.Scheme { return c.inner.Scheme() }

// RESTMapper returns that of the client below.
func (c *fencedClient) RESTMapper() meta.RESTMapper { return c.inner.RESTMapper() }

// GroupVersionKindFor returns the kind of an object.
func (c *fencedClient) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return c.inner.GroupVersionKindFor(obj)
}

// IsObjectNamespaced tells whether the kind of an object is namespaced.
func (c *fencedClient) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	return c.inner.IsObjectNamespaced(obj)
}

// Status returns the client of the subresource status.
func (c *fencedClient) Status() client.SubResourceWriter { return c.SubResource(subresourceStatus) }

// SubResource returns the client of a subresource.
func (c *fencedClient) SubResource(subresource string) client.SubResourceClient {
	return &fencedSubresource{client: c, inner: c.inner.SubResource(subresource), name: subresource}
}

// Create creates an object that carries the token.
func (c *fencedClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	ctx = c.presenting(ctx)
	marks, err := c.marksFor(ctx, obj, subresourceMain)
	if err != nil {
		return err
	}
	return c.create(ctx, obj, marks, func() error {
		return stamped(obj, marks, func() error { return c.inner.Create(ctx, obj, opts...) })
	})
}

// create sends a create. If it fails, the object has the name that it had.
func (c *fencedClient) create(ctx context.Context, obj client.Object, marks []mark, send func() error) error {
	named := nameByOperation(obj, marks)
	err := c.settle(ctx, obj, marks, send())
	if err != nil && named {
		obj.SetName("")
	}
	return err
}

// Update updates an object with a new mark.
func (c *fencedClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	ctx = c.presenting(ctx)
	marks, err := c.marksFor(ctx, obj, subresourceMain)
	if err != nil {
		return err
	}
	err = stamped(obj, marks, func() error { return c.inner.Update(ctx, obj, opts...) })
	return c.settle(ctx, obj, marks, err)
}

// Patch patches an object and its mark.
func (c *fencedClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	ctx = c.presenting(ctx)
	marks, err := c.marksFor(ctx, obj, subresourceMain)
	if err != nil {
		return err
	}
	err = c.patch(obj, patch, marks, subresourceMain, func(p client.Patch) error { return c.inner.Patch(ctx, obj, p, opts...) })
	return c.settle(ctx, obj, marks, err)
}

// Apply applies a configuration that carries the token.
func (c *fencedClient) Apply(ctx context.Context, configuration runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	ctx = c.presenting(ctx)
	sent, err := unstructuredOf(configuration)
	if err != nil {
		return err
	}
	marks, err := c.marksForKind(ctx, sent.GroupVersionKind(), sent.GetNamespace(), subresourceMain)
	if err != nil {
		return err
	}
	if len(marks) == 0 {
		return c.inner.Apply(ctx, configuration, opts...)
	}
	sent.SetAnnotations(withMarks(sent.GetAnnotations(), marks))
	if err := c.inner.Apply(ctx, client.ApplyConfigurationFromUnstructured(sent), opts...); err != nil {
		return c.settleApply(ctx, configuration, sent, marks, err)
	}
	return takeAnswer(configuration, sent)
}

// DeleteAllOf is refused for guarded objects: it writes nothing that could carry a token.
func (c *fencedClient) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	ctx = c.presenting(ctx)
	options := client.DeleteAllOfOptions{}
	options.ApplyOptions(opts)
	gvk, err := c.inner.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	guarding, err := c.guarding(gvk, options.Namespace, subresourceMain)
	if err != nil {
		return err
	}
	if len(guarding) > 0 {
		return &CannotStampError{
			Lease: guarding[0].possession.Lease(), Write: describe("deletecollection", gvk, subresourceMain),
			Reason: "a deletecollection writes no annotation (Delete stamps objects one by one)",
		}
	}
	return c.inner.DeleteAllOf(ctx, obj, opts...)
}

// describe names a write for errors.
func describe(verb string, gvk schema.GroupVersionKind, subresource string) string {
	write := verb + " of " + gvk.GroupKind().String()
	if subresource != subresourceMain {
		write += "/" + subresource
	}
	return write
}

// checkHeld refuses every write, also of what is not guarded, once a possession has ended.
func (c *fencedClient) checkHeld() error {
	for _, s := range c.stampers {
		if pending(s.possession) {
			continue
		}
		if err := checkHeld(s.possession); err != nil {
			return err
		}
	}
	return nil
}

// marksFor returns new marks for a write of an object, one for each lease that may guard it.
func (c *fencedClient) marksFor(ctx context.Context, obj client.Object, subresource string) ([]mark, error) {
	gvk, err := c.inner.GroupVersionKindFor(obj)
	if err != nil {
		return nil, err
	}
	return c.marksForKind(ctx, gvk, obj.GetNamespace(), subresource)
}

func (c *fencedClient) marksForKind(ctx context.Context, gvk schema.GroupVersionKind, namespace, subresource string) ([]mark, error) {
	guarding, err := c.guarding(gvk, namespace, subresource)
	if err != nil {
		return nil, err
	}
	return marksOf(guarding, func(s *stamper) (mark, error) { return s.present(ctx) })
}

func marksOf(stampers []*stamper, next func(*stamper) (mark, error)) ([]mark, error) {
	marks := make([]mark, 0, len(stampers))
	for _, s := range stampers {
		m, err := next(s)
		if err != nil {
			return nil, err
		}
		marks = append(marks, m)
	}
	return marks, nil
}

// operates reports whether a context carries an operation of one of the leases.
func operates(ctx context.Context, stampers []*stamper) bool {
	return slices.ContainsFunc(stampers, func(s *stamper) bool { return operationOf(ctx, s.possession.Lease()) != nil })
}

// guarding returns the stampers of the leases that may guard a place, after a check that all possessions are held.
func (c *fencedClient) guarding(gvk schema.GroupVersionKind, namespace, subresource string) ([]*stamper, error) {
	if err := c.checkHeld(); err != nil {
		return nil, err
	}
	at := place{subresource: subresource, namespace: namespace}
	var guarding []*stamper
	for _, s := range c.stampers {
		if pending(s.possession) {
			continue
		}
		guards := s.possession.Guards()
		if !slices.ContainsFunc(guards, func(g v1alpha1.Guard) bool { return slices.Contains(g.APIGroups, gvk.Group) }) {
			continue
		}
		if at.Resource == "" {
			// From discovery, which may be older than a new kind, and then says so.
			mapping, err := c.inner.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
			if err != nil {
				return nil, fmt.Errorf("find the resource of %s: %w", gvk, err)
			}
			at.GroupResource = mapping.Resource.GroupResource()
			at.namespaced = mapping.Scope.Name() == meta.RESTScopeNameNamespace
		}
		if guarded(guards, s.possession.Lease(), at) {
			guarding = append(guarding, s)
		}
	}
	// Once more: discovery may have taken time.
	return guarding, c.checkHeld()
}
