// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	// pageSize is the number of objects that one list returns.
	pageSize = 500
	// maxErrors is the number of failures that one sweep reports.
	maxErrors = 3
)

// sweep is one look through the objects of a target.
type sweep struct {
	target    Target
	namespace string
	places    *places
	// listed is told the version of the list as soon as it is known, and remaining about how many objects are still to come.
	listed    func(version string)
	remaining func(n int64)
}

// sweep lists objects, page by page, and stamps those that do not carry the term's mark. It returns when each of them does,
// or is gone. The list is from the API server, consistent and linearizable, so it has every object that was committed before
// it began. One object that fails does not keep the others from being stamped.
func (s *session) sweep(ctx context.Context, w sweep) error {
	objects := w.target.in(s.sealer.options.Objects, w.namespace)
	options := metav1.ListOptions{Limit: pageSize, LabelSelector: w.target.listed()}
	failures := &failures{}
	var stamps sync.WaitGroup
	defer stamps.Wait()
	for first := true; ; {
		page, err := objects.List(ctx, options)
		switch {
		case apierrors.IsResourceExpired(err) && options.Continue != "":
			// It took longer than the server keeps versions. What is stamped needs no second stamp.
			options.Continue = ""
			continue
		case err != nil:
			stamps.Wait()
			return errors.Join(s.explained(err, "list", w.target.Resource.GroupResource()), failures.err())
		}
		if first {
			w.listed(page.ResourceVersion)
			first = false
		}
		for i := range page.Items {
			w.remaining(ptr.Deref(page.RemainingItemCount, 0) + int64(len(page.Items)-i))
			s.consider(ctx, w, &page.Items[i], &stamps, failures)
		}
		if options.Continue = page.Continue; options.Continue == "" || ctx.Err() != nil {
			stamps.Wait()
			return errors.Join(failures.err(), ctx.Err())
		}
	}
}

// consider stamps one object of a list if it needs that.
func (s *session) consider(ctx context.Context, w sweep, object *metav1.PartialObjectMetadata, stamps *sync.WaitGroup, failures *failures) {
	if !w.target.matches(object, w.places.labels) {
		return
	}
	needed, verdict := s.needsStamp(w.target, object)
	if !needed {
		return
	}
	if s.order.Sealed && verdict == older {
		s.count(&s.later, 1)
	}
	stamps.Add(1)
	if !s.whenFree(ctx, func() {
		defer stamps.Done()
		failures.add(s.stampPlainly(ctx, w.target, object))
	}) {
		stamps.Done()
	}
}

// failures are the first of several.
type failures struct {
	mu    sync.Mutex
	first []error
	more  int
}

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.first) < maxErrors {
		f.first = append(f.first, err)
		return
	}
	f.more++
}

func (f *failures) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.more > 0 {
		return errors.Join(append(f.first[:len(f.first):len(f.first)], fmt.Errorf("%d more objects failed", f.more))...)
	}
	return errors.Join(f.first...)
}
