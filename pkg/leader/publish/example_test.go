// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/pkg/leader"
	"github.com/fencedlease/fencedlease/pkg/leader/publish"
)

// publishPage stages a page and switches the publication front-page to it, under a term of an elector.
func publishPage(ctx context.Context, c client.Client, term *leader.Term, text string) error {
	publisher, err := publish.New(publish.Options{
		Client: term.Client(c), Possession: term,
		Reference: object("Publication", "front-page"),
		Refers: func(publication, page client.Object) bool {
			return publication.GetAnnotations()["example.com/page"] == page.GetName()
		},
		Kinds: []schema.GroupVersionKind{object("Page", "").GroupVersionKind()},
	})
	if err != nil {
		return err
	}
	// What older terms have left goes, and none of them can switch any more.
	if _, err := publisher.Collect(ctx); err != nil {
		return err
	}
	staging := publisher.Begin()
	page := object("Page", staging.Name("front-page"))
	page.Object["spec"] = map[string]any{"text": text}
	if err := staging.Create(ctx, page); err != nil {
		return err
	}
	return staging.Publish(ctx, func(publication client.Object) error {
		annotations := publication.GetAnnotations()
		annotations["example.com/page"] = page.GetName()
		publication.SetAnnotations(annotations)
		return nil
	})
}

func object(kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("example.com/v1")
	o.SetKind(kind)
	o.SetNamespace("reports")
	o.SetName(name)
	return o
}

// A leader publishes from within its work. This is the work that an elector is given.
func Example() {
	var c client.Client // from client.New, in a real program
	work := func(ctx context.Context, term *leader.Term) error {
		return publishPage(ctx, c, term, "all is well")
	}
	_ = work // elector.Run(ctx, work)
	fmt.Println("published under the term, or not at all")
	// Output: published under the term, or not at all
}
