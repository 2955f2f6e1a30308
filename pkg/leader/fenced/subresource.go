// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fencedSubresource is the client of one subresource.
type fencedSubresource struct {
	client *fencedClient
	inner  client.SubResourceClient
	name   string
}

var _ client.SubResourceClient = &fencedSubresource{}

// unstampable says why the writes of a subresource cannot be stamped; it is empty for status.
func (s *fencedSubresource) unstampable() string {
	switch s.name {
	case subresourceStatus:
		return ""
	case subresourceScale:
		return "a Scale has no annotations of the object"
	default:
		return "nothing is known of annotations in writes of this subresource"
	}
}

// guardedAs returns the subresource that guards are asked for. One that is not known counts as guarded with its object.
func (s *fencedSubresource) guardedAs() string {
	switch s.name {
	case subresourceStatus, subresourceScale:
		return s.name
	default:
		return subresourceAny
	}
}

// refuse refuses writes that cannot be stamped, if the object is guarded.
func (s *fencedSubresource) refuse(obj client.Object, verb, reason string) error {
	gvk, err := s.client.inner.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	guarding, err := s.client.guarding(gvk, obj.GetNamespace(), s.guardedAs())
	if err != nil || len(guarding) == 0 {
		return err
	}
	return &CannotStampError{Lease: guarding[0].possession.Lease(), Write: describe(verb, gvk, s.name), Reason: reason}
}

// Get reads as the client below does.
func (s *fencedSubresource) Get(ctx context.Context, obj, subresource client.Object, opts ...client.SubResourceGetOption) error {
	return s.inner.Get(ctx, obj, subresource, opts...)
}

// Create is refused for guarded objects: no subresource of theirs is created.
func (s *fencedSubresource) Create(ctx context.Context, obj, subresource client.Object, opts ...client.SubResourceCreateOption) error {
	ctx = s.client.presenting(ctx)
	if err := s.refuse(obj, "create", "no subresource that can be created carries an annotation of the object"); err != nil {
		return err
	}
	return s.inner.Create(ctx, obj, subresource, opts...)
}

// Update updates the subresource. A status carries the token in the annotation of the request, which is not stored.
func (s *fencedSubresource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	ctx = s.client.presenting(ctx)
	if reason := s.unstampable(); reason != "" {
		if err := s.refuse(obj, "update", reason); err != nil {
			return err
		}
		return s.inner.Update(ctx, obj, opts...)
	}
	marks, err := s.client.marksFor(ctx, obj, s.name)
	if err != nil {
		return err
	}
	options := client.SubResourceUpdateOptions{}
	options.ApplyOptions(opts)
	body := obj
	if options.SubResourceBody != nil {
		body = options.SubResourceBody
	}
	err = stamped(body, marks, func() error { return s.inner.Update(ctx, obj, opts...) })
	return sayApplied(operationsIn(marks), err)
}

// Patch patches the subresource. A patch of the status carries the token in the annotation of the request.
func (s *fencedSubresource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	ctx = s.client.presenting(ctx)
	if reason := s.unstampable(); reason != "" {
		if err := s.refuse(obj, "patch", reason); err != nil {
			return err
		}
		return s.inner.Patch(ctx, obj, patch, opts...)
	}
	marks, err := s.client.marksFor(ctx, obj, s.name)
	if err != nil {
		return err
	}
	options := client.SubResourcePatchOptions{}
	options.ApplyOptions(opts)
	body := obj
	if options.SubResourceBody != nil {
		body = options.SubResourceBody
	}
	err = s.client.patch(body, patch, marks, s.name, func(p client.Patch) error { return s.inner.Patch(ctx, obj, p, opts...) })
	return sayApplied(operationsIn(marks), err)
}

// Apply applies the subresource. A status carries the token in the annotation of the request.
func (s *fencedSubresource) Apply(ctx context.Context, configuration runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	ctx = s.client.presenting(ctx)
	named, err := unstructuredOf(configuration)
	if err != nil {
		return err
	}
	if reason := s.unstampable(); reason != "" {
		if err := s.refuse(named, "apply", reason); err != nil {
			return err
		}
		return s.inner.Apply(ctx, configuration, opts...)
	}
	marks, err := s.client.marksForKind(ctx, named.GroupVersionKind(), named.GetNamespace(), s.name)
	if err != nil {
		return err
	}
	if len(marks) == 0 {
		return s.inner.Apply(ctx, configuration, opts...)
	}
	options := client.SubResourceApplyOptions{}
	options.ApplyOpts(opts)
	if options.SubResourceBody == nil {
		named.SetAnnotations(withMarks(named.GetAnnotations(), marks))
	} else {
		body, err := unstructuredOf(options.SubResourceBody)
		if err != nil {
			return err
		}
		body.SetAnnotations(withMarks(body.GetAnnotations(), marks))
		opts = append(opts[:len(opts):len(opts)], &client.SubResourceApplyOptions{SubResourceBody: client.ApplyConfigurationFromUnstructured(body)})
	}
	if err := s.inner.Apply(ctx, client.ApplyConfigurationFromUnstructured(named), opts...); err != nil {
		return sayApplied(operationsIn(marks), err)
	}
	return takeAnswer(configuration, named)
}
