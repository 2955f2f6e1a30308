// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package publish makes results appear at once or not at all: it stages objects that nobody reads, and then switches a
// reference to them, in one guarded object, by one fenced update.
//
// A create has no stored object that it could be checked against at the commit, so that one of a former leader may still land
// (docs/guarantees.md). Staged objects may: they are inert until the reference refers to them, and the update that does it is
// refused once the term is over. What has lost is collected.
//
//	publisher, err := publish.New(publish.Options{
//		Client: term.Client(c), Possession: term,
//		Reference: publication, Refers: refers,
//		Kinds: []schema.GroupVersionKind{pageKind},
//	})
//	// Once, when the term begins: no older switch is committed from here on, and what older terms have left is deleted.
//	_, err = publisher.Collect(ctx)
//	// For each result.
//	staging := publisher.Begin()
//	err = staging.Create(ctx, page(staging.Name("front-page"), text))
//	err = staging.Publish(ctx, func(reference client.Object) error {
//		reference.(*Publication).Spec.PageRef.Name = staging.Name("front-page")
//		return nil
//	})
//
// The reference must be an object that the lease guards, for everybody. It must be there before, referring to nothing or to
// something else; Ensure creates it. Staged objects may be guarded or not.
//
// Collect deletes a staged object only if it can be referred to by nobody any more: the reference does not refer to its
// staging, as a write of this term has left it, so that no update of an older term can follow; its term is older, or it is
// of this publisher and given up or published and replaced; and it is, by uid and resourceVersion, the object that was judged.
// Objects of a term that is newer than the collector's, and of the same term but another publisher, are left alone.
//
// Who follows the reference may find that the object is gone, as the reference has moved on meanwhile: read the reference again.
package publish
