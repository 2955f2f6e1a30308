// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// The subresources of a custom resource; the main resource is the empty string.
const (
	subresourceMain   = ""
	subresourceStatus = "status"
	subresourceScale  = "scale"
	// subresourceAny stands for the object with all that it has.
	subresourceAny = "*"
)

// stamper makes the marks of one possession.
type stamper struct {
	possession Possession
	// series tells the operations of this stamper from those of others that write under the same term.
	series string
	count  atomic.Int64
}

func newStamper(p Possession) *stamper {
	// Never returns an error. The prefix says that these operations only tell writes apart, and are not to be recorded.
	return &stamper{possession: p, series: token.NoncePrefix + strings.ToLower(rand.Text()[:10])}
}

// mark is the annotation by which a write presents a token.
type mark struct {
	lease      types.NamespacedName
	key, value string
	// operation is the business operation that the mark presents, or nil.
	operation *Operation
}

// next returns a mark that no write has used before: an annotation that stays as it is stored presents nothing.
func (s *stamper) next() (mark, error) {
	return s.mark(s.series + "-" + strconv.FormatInt(s.count.Add(1), 10))
}

// present returns the mark of a write: that of the operation which the context carries for the lease, or a new one.
func (s *stamper) present(ctx context.Context) (mark, error) {
	o := operationOf(ctx, s.possession.Lease())
	if o == nil {
		return s.next()
	}
	m, err := s.mark(o.id)
	m.operation = o
	return m, err
}

// deleteIntent returns the mark that asks for an object's deletion.
func (s *stamper) deleteIntent() (mark, error) { return s.mark(token.OperationDelete) }

func (s *stamper) mark(operation string) (mark, error) {
	lease := s.possession.Lease()
	t, err := s.possession.Token().WithOperation(operation)
	if err != nil {
		return mark{}, fmt.Errorf("make mark of FencedLease %s: %w", lease, err)
	}
	return mark{lease: lease, key: v1alpha1.TokenKey(lease.Name), value: t.String()}, nil
}

// place is where a write goes.
type place struct {
	schema.GroupResource
	subresource string
	// namespaced says that the kind is. The namespace may be empty all the same, where it is filled in further on.
	namespaced bool
	namespace  string
}

// guarded reports whether a guard of a lease may reach a place. Labels are not looked at: those of the stored object count,
// too, and are not known here.
func guarded(guards []v1alpha1.Guard, lease types.NamespacedName, at place) bool {
	return slices.ContainsFunc(guards, func(g v1alpha1.Guard) bool {
		return names(g, at) && reaches(g, lease, at)
	})
}

func names(g v1alpha1.Guard, at place) bool {
	if at.subresource != subresourceAny {
		return g.Names(at.GroupResource, at.subresource)
	}
	return slices.ContainsFunc([]string{subresourceMain, subresourceStatus, subresourceScale}, func(subresource string) bool {
		return g.Names(at.GroupResource, subresource)
	})
}

func reaches(g v1alpha1.Guard, lease types.NamespacedName, at place) bool {
	if g.NamespaceSelector != nil {
		return true
	}
	return at.namespaced && (at.namespace == "" || at.namespace == lease.Namespace)
}

// stamped calls a write with an object that carries marks. If it fails, the object gets back the annotations that it had.
func stamped(obj client.Object, marks []mark, write func() error) error {
	if len(marks) == 0 {
		return write()
	}
	before := obj.GetAnnotations()
	// A copy: others may hold the same map.
	obj.SetAnnotations(withMarks(before, marks))
	err := write()
	if err != nil {
		obj.SetAnnotations(before)
	}
	return err
}

func withMarks(annotations map[string]string, marks []mark) map[string]string {
	annotations = maps.Clone(annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for _, m := range marks {
		annotations[m.key] = m.value
	}
	return annotations
}
