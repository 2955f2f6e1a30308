// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/guarded"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// pageSize is how many objects one request lists.
const pageSize = 500

// count is how many objects of one kind a lease guards, by their marks.
type count struct {
	kind schema.GroupResource
	// current objects carry the lease's generation, older ones a lower one, newer ones a higher one, unmarked ones none.
	current, older, newer, unmarked int
	// problem says why the objects could not be counted.
	problem string
}

func (c count) total() int { return c.current + c.older + c.newer + c.unmarked }

// count counts the guarded objects of each kind by listing their metadata from the API server.
func (o *Options) count(ctx context.Context, lease *v1alpha1.FencedLease) []count {
	var kinds []schema.GroupResource
	for _, g := range lease.Spec.Guards {
		for _, kind := range guarded.Kinds(g) {
			if !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	counts := make([]count, 0, len(kinds))
	for _, kind := range kinds {
		c := count{kind: kind}
		if err := o.countKind(ctx, lease, &c); err != nil {
			c.problem = problemOf(err)
		}
		counts = append(counts, c)
	}
	return counts
}

func problemOf(err error) string {
	switch {
	case meta.IsNoMatchError(err):
		return "this kind is not installed"
	case apierrors.IsForbidden(err):
		return "you may not list it: ask for get and list on this kind"
	default:
		return err.Error()
	}
}

// countKind lists the kind where the guards of the lease reach, and counts what they select.
func (o *Options) countKind(ctx context.Context, lease *v1alpha1.FencedLease, c *count) error {
	resource, err := o.mapper.ResourceFor(c.kind.WithVersion(""))
	if err != nil {
		return fmt.Errorf("find kind of %s: %w", c.kind, err)
	}
	namespace := lease.Namespace
	if slices.ContainsFunc(lease.Spec.Guards, func(g v1alpha1.Guard) bool {
		return g.NamespaceSelector != nil && slices.Contains(guarded.Kinds(g), c.kind)
	}) {
		namespace = metav1.NamespaceAll
	}
	namespaces := map[string]labels.Set{}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := o.metadata.Resource(resource).Namespace(namespace).List(ctx, options)
		if err != nil {
			return fmt.Errorf("list %s: %w", c.kind, err)
		}
		for i := range page.Items {
			under, err := o.guards(ctx, lease, c.kind, &page.Items[i], namespaces)
			if err != nil {
				return err
			}
			if under {
				c.add(&page.Items[i], lease)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

// guards reports whether any guard of the lease, whatever subresource it names, selects the object.
func (o *Options) guards(ctx context.Context, lease *v1alpha1.FencedLease, kind schema.GroupResource, object *metav1.PartialObjectMetadata, namespaces map[string]labels.Set) (bool, error) {
	for _, subresource := range []string{"", "status", "scale"} {
		found, err := guarded.By(ctx, lease, guarded.Object{
			Resource: kind, Subresource: subresource, Namespace: object.Namespace, Labels: []labels.Set{object.Labels},
			NamespaceLabels: func(ctx context.Context) (labels.Set, error) {
				return o.namespaceLabels(ctx, object.Namespace, namespaces)
			},
		})
		if err != nil || len(found) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// namespaceLabels reads the labels of a namespace from the API server, once.
func (o *Options) namespaceLabels(ctx context.Context, name string, known map[string]labels.Set) (labels.Set, error) {
	if set, ok := known[name]; ok {
		return set, nil
	}
	namespace := &corev1.Namespace{}
	if err := o.client.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return nil, fmt.Errorf("get namespace %s: %w", name, err)
	}
	known[name] = namespace.Labels
	return namespace.Labels, nil
}

func (c *count) add(object *metav1.PartialObjectMetadata, lease *v1alpha1.FencedLease) {
	mark, err := token.Parse(object.Annotations[v1alpha1.TokenKey(lease.Name)])
	generation := ptr.Deref(lease.Status.Generation, 0)
	switch {
	case err != nil:
		c.unmarked++
	case mark.Generation < generation:
		c.older++
	case mark.Generation > generation:
		c.newer++
	default:
		c.current++
	}
}

// String tells the count in one line.
func (c count) String() string {
	if c.problem != "" {
		return "unknown: " + c.problem
	}
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{
		{c.current, "with the lease's generation"},
		{c.older, "with an older mark"},
		{c.newer, "with a mark above the lease's generation"},
		{c.unmarked, "without a mark"},
	} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", c.total(), strings.Join(parts, ", "))
}
