// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Command publish is a job whose late results must not appear at all.
//
// A create has no stored object that it could be checked against at the commit, so that one which was past its check when the
// lease changed hands may still land (see docs/guarantees.md). This job therefore stages its content: a Page that nobody
// reads, under a name that no other job uses. It then publishes it by an update of the Publication, which names the page to be
// read. That update is fenced: of a leader whose time is over it is refused, and what it has staged stays unread until its
// successor deletes it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/pkg/leader"
	"github.com/fencedlease/fencedlease/pkg/leader/publish"
)

func main() {
	name := flag.String("publication", "front-page", "the publication to switch")
	text := flag.String("text", "all is well", "what to publish")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	if err := run(ctrl.SetupSignalHandler(), ctrl.GetConfigOrDie(), *name, *text); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, config *rest.Config, name, text string) error {
	// A job ends when its lease is lost, and its successor starts from the beginning.
	elector, err := leader.New(leader.Options{Config: config, Namespace: "reports", Name: "report-writer", ExitOnLoss: true})
	if err != nil {
		return err
	}
	return elector.Run(ctx, func(ctx context.Context, term *leader.Term) error {
		c, err := client.New(term.Wrap(config), client.Options{})
		if err != nil {
			return err
		}
		publisher, err := publish.New(publish.Options{
			Client: c, Possession: term,
			Reference: object("Publication", name), Refers: refers,
			Kinds: []schema.GroupVersionKind{object("Page", "").GroupVersionKind()},
		})
		if err != nil {
			return err
		}
		return publishPage(ctx, publisher, name, text)
	})
}

func publishPage(ctx context.Context, publisher *publish.Publisher, name, text string) error {
	if err := publisher.Ensure(ctx, object("Publication", name)); err != nil {
		return err
	}
	// From here on no switch of an older term is committed, and what older terms have left is gone.
	if _, err := publisher.Collect(ctx); err != nil {
		return err
	}
	staging := publisher.Begin()
	page := object("Page", staging.Name(name))
	if err := unstructured.SetNestedField(page.Object, text, "spec", "text"); err != nil {
		return err
	}
	// Nobody reads it yet.
	if err := staging.Create(ctx, page); err != nil {
		return err
	}
	err := staging.Publish(ctx, func(reference client.Object) error {
		return setPage(reference, page.GetName())
	})
	if err != nil {
		return err
	}
	log.Printf("%s shows %s", name, page.GetName())
	// What was published before is referred to no more.
	_, err = publisher.Collect(ctx)
	return err
}

// refers tells whether a publication names a page.
func refers(reference, staged client.Object) bool {
	publication, ok := reference.(*unstructured.Unstructured)
	if !ok {
		return false
	}
	page, _, _ := unstructured.NestedString(publication.Object, "spec", "pageRef", "name")
	return page == staged.GetName()
}

func setPage(reference client.Object, page string) error {
	publication, ok := reference.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("the publication is a %T", reference)
	}
	return unstructured.SetNestedField(publication.Object, page, "spec", "pageRef", "name")
}

func object(kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("example.com/v1")
	o.SetKind(kind)
	o.SetNamespace("reports")
	o.SetName(name)
	return o
}
