// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Command publish is a job whose late results must not appear at all.
//
// A create has no stored object that it could be checked against at the commit, so that one which was past its check when the
// lease changed hands may still land (see docs/guarantees.md). This job therefore creates its content inert: a Page that
// nobody reads, under a name that no other term uses. It then publishes it by an update of the Publication, which names the
// page to be read. That update is fenced: of a leader whose time is over it is refused, and what it created stays unread.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencedlease/fencedlease/pkg/leader"
)

var (
	pages        = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "pages"}
	publications = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "publications"}
)

func main() {
	name := flag.String("publication", "front-page", "the publication to switch")
	text := flag.String("text", "all is well", "what to publish")
	flag.Parse()
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
		client, err := dynamic.NewForConfig(term.Wrap(config))
		if err != nil {
			return err
		}
		info := term.Info()
		page := fmt.Sprintf("%s-%d-%s", name, info.Generation, info.ID)
		if err := stage(ctx, client, page, text); err != nil {
			return fmt.Errorf("stage: %w", err)
		}
		if err := publish(ctx, client, name, page); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		log.Printf("%s shows %s", name, page)
		return nil
	})
}

// stage creates the content. Nobody reads it yet.
func stage(ctx context.Context, client dynamic.Interface, page, text string) error {
	_, err := client.Resource(pages).Namespace("reports").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Page",
		"metadata": map[string]any{"name": page},
		"spec":     map[string]any{"text": text},
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// An earlier attempt of this very term, whose answer was lost: the name holds the term.
		return nil
	}
	return err
}

// publish makes the publication refer to the content.
func publish(ctx context.Context, client dynamic.Interface, name, page string) error {
	_, err := client.Resource(publications).Namespace("reports").Apply(ctx, name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Publication",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"pageRef": map[string]any{"name": page}},
	}}, metav1.ApplyOptions{FieldManager: "publisher", Force: true})
	return err
}
