// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClientOption changes how Client and Replaying work.
type ClientOption func(*fencedClient)

// ReadingBy says by which reader the object is read to which an operation was applied before. It must ask the API server.
// Without this option the client itself is asked; if that reads from a cache which is behind, a replay stays an error. A delete
// of one version of an object that the cache does not hold may then be told NotFound where it is a conflict.
func ReadingBy(reader client.Reader) ClientOption {
	return func(c *fencedClient) { c.reader = reader }
}

// Replaying returns a client that answers replays of operations with success, as one of Client does, for a client whose
// requests carry the token already: one that was made from the configuration of Wrap. It derives names for generateName
// from the operation as well, and deletes with an operation need a uid, so that DeleteAllOf is refused.
//
// For objects that several leases guard, the client is given to Replaying once for each, with nothing in between.
func Replaying(c client.Client, possession Possession, opts ...ClientOption) client.Client {
	r := &replayingClient{Client: c, fenced: &fencedClient{inner: c, reader: c, stampers: []*stamper{newStamper(possession)}}}
	if below, ok := c.(*replayingClient); ok {
		r.Client = below.Client
		r.fenced.inner, r.fenced.reader = below.fenced.inner, below.fenced.reader
		r.fenced.stampers = append(slices.Clone(below.fenced.stampers), r.fenced.stampers...)
	}
	for _, option := range opts {
		option(r.fenced)
	}
	return r
}

// replayingClient passes everything on as it is, and looks at what comes back of writes with an operation.
type replayingClient struct {
	client.Client

	fenced *fencedClient
}

// presented returns marks for what the request presents by itself.
func (r *replayingClient) presented(ctx context.Context, obj client.Object) ([]mark, error) {
	if !operates(ctx, r.fenced.stampers) {
		return nil, nil
	}
	return r.fenced.marksFor(ctx, obj, subresourceMain)
}

// Create creates an object once.
func (r *replayingClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	marks, err := r.presented(ctx, obj)
	if err != nil {
		return err
	}
	return r.fenced.create(ctx, obj, marks, func() error { return r.Client.Create(ctx, obj, opts...) })
}

// Update updates an object once.
func (r *replayingClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	marks, err := r.presented(ctx, obj)
	if err != nil {
		return err
	}
	return r.fenced.settle(ctx, obj, marks, r.Client.Update(ctx, obj, opts...))
}

// Patch patches an object once.
func (r *replayingClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	marks, err := r.presented(ctx, obj)
	if err != nil {
		return err
	}
	return r.fenced.settle(ctx, obj, marks, r.Client.Patch(ctx, obj, patch, opts...))
}

// Apply applies a configuration once.
func (r *replayingClient) Apply(ctx context.Context, configuration runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if !operates(ctx, r.fenced.stampers) {
		return r.Client.Apply(ctx, configuration, opts...)
	}
	named, err := unstructuredOf(configuration)
	if err != nil {
		return err
	}
	marks, err := r.fenced.marksForKind(ctx, named.GroupVersionKind(), named.GetNamespace(), subresourceMain)
	if err != nil {
		return err
	}
	return r.fenced.settleApply(ctx, configuration, named, marks, r.Client.Apply(ctx, configuration, opts...))
}

// Delete deletes the one object that the operation is about.
func (r *replayingClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if !operates(ctx, r.fenced.stampers) {
		return r.Client.Delete(ctx, obj, opts...)
	}
	return r.fenced.deleteGuarded(ctx, obj, opts, (*deletion).once)
}

// DeleteAllOf is refused with an operation for guarded objects: it is about all that are there, each time.
func (r *replayingClient) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	if !operates(ctx, r.fenced.stampers) {
		return r.Client.DeleteAllOf(ctx, obj, opts...)
	}
	options := client.DeleteAllOfOptions{}
	options.ApplyOptions(opts)
	gvk, err := r.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	guarding, err := r.fenced.guarding(gvk, options.Namespace, subresourceMain)
	if err != nil {
		return err
	}
	if operates(ctx, guarding) {
		return fmt.Errorf("%s: %w", describe("deletecollection", gvk, subresourceMain), ErrDeleteWithoutUID)
	}
	return r.Client.DeleteAllOf(ctx, obj, opts...)
}
