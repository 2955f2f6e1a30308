// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
)

var (
	// ErrNotGuarded means that a write of the reference has left no mark of the term: the lease does not guard it, or its
	// guard is not in force yet. Nothing was published or collected.
	ErrNotGuarded = errors.New("reference is not guarded")

	// ErrDoesNotRefer means that the reference was to be switched to a staging that it does not refer to then.
	ErrDoesNotRefer = errors.New("reference does not refer to what is staged")

	// ErrFinished means that a staging was published or given up before.
	ErrFinished = errors.New("staging is finished")
)

// Possession is the term of a FencedLease that publishes. A *leader.Term is one, and so is every fenced.Possession.
type Possession interface {
	// Lease names the FencedLease.
	Lease() types.NamespacedName
	// Token returns the token of the term, with generation and term and without an operation.
	Token() token.Token
}

var _ Possession = fenced.Possession(nil)

// Options are the choices of a Publisher. All but Namespace are required.
type Options struct {
	// Client writes under the term, and refuses to once that has ended: it is made by term.Client, or from term.Wrap. If it reads from a cache, attempts are made
	// in vain until the cache has caught up, and what is listed late is collected later.
	Client client.Client

	// Possession is the term.
	Possession Possession

	// Reference is the guarded object that refers to what is published: its type, namespace and name. It is not changed.
	Reference client.Object

	// Refers reports whether the reference, as it is stored, refers to a staged object. Of that it may look at the kind and
	// the metadata only. Objects that are reached from there count by their staging: if the reference refers to one of them,
	// all of the staging are kept.
	Refers func(reference, staged client.Object) bool

	// Kinds are those of staged objects.
	Kinds []schema.GroupVersionKind

	// Namespace is that of staged objects. Empty means the reference's.
	Namespace string
}

// Publisher publishes to one reference under one term. Its methods may be called by several goroutines. It is made where the
// work of the term begins, and not kept for another term.
type Publisher struct {
	options   Options
	possessed token.Token
	// reference is the label that tells staged objects of this reference.
	reference string

	// mu keeps a switch and a collection from running at once.
	mu sync.Mutex
	// finished has the stagings of this publisher that are published or given up, until they are collected.
	finished map[string]bool
}

// New returns a publisher.
func New(options Options) (*Publisher, error) {
	switch {
	case options.Client == nil || options.Possession == nil || options.Reference == nil || options.Refers == nil:
		return nil, errors.New("make a publisher: Client, Possession, Reference or Refers is missing")
	case options.Reference.GetName() == "":
		return nil, errors.New("make a publisher: the reference has no name")
	case len(options.Kinds) == 0:
		return nil, errors.New("make a publisher: Kinds is empty")
	}
	t := options.Possession.Token()
	if t.Generation < 1 || t.Term == "" {
		return nil, fmt.Errorf("make a publisher: the possession has no token with a term: %q", t)
	}
	gvk, err := options.Client.GroupVersionKindFor(options.Reference)
	if err != nil {
		return nil, fmt.Errorf("make a publisher: %w", err)
	}
	if options.Namespace == "" {
		options.Namespace = options.Reference.GetNamespace()
	}
	options.Kinds = slices.Clone(options.Kinds)
	return &Publisher{
		options: options, possessed: t.Possession(), finished: map[string]bool{},
		reference: referenceLabel(options.Possession.Lease(), gvk.GroupKind(), client.ObjectKeyFromObject(options.Reference)),
	}, nil
}

// referenceLabel names a lease and a reference in a label, whose values are short.
func referenceLabel(lease types.NamespacedName, kind schema.GroupKind, key client.ObjectKey) string {
	sum := sha256.Sum256([]byte(lease.String() + "\x00" + kind.String() + "\x00" + key.String()))
	return hex.EncodeToString(sum[:16])
}

// Ensure creates the reference if it is missing, as an object that must refer to nothing. A create of an older term that lands
// late does no harm then.
func (p *Publisher) Ensure(ctx context.Context, empty client.Object) error {
	if client.ObjectKeyFromObject(empty) != client.ObjectKeyFromObject(p.options.Reference) {
		return fmt.Errorf("create the reference: it is %s, want %s", client.ObjectKeyFromObject(empty), p)
	}
	if err := p.options.Client.Create(ctx, empty); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the reference %s: %w", p, err)
	}
	return nil
}

// String names the reference.
func (p *Publisher) String() string { return client.ObjectKeyFromObject(p.options.Reference).String() }

// read reads the reference.
func (p *Publisher) read(ctx context.Context) (client.Object, error) {
	reference, err := p.copy()
	if err != nil {
		return nil, err
	}
	if err := p.options.Client.Get(ctx, client.ObjectKeyFromObject(reference), reference); err != nil {
		return nil, fmt.Errorf("read the reference %s: %w", p, err)
	}
	return reference, nil
}

// copy returns an object to read the reference into.
func (p *Publisher) copy() (client.Object, error) {
	reference, ok := p.options.Reference.DeepCopyObject().(client.Object)
	if !ok {
		return nil, fmt.Errorf("copy %T: the copy is no object", p.options.Reference)
	}
	reference.SetResourceVersion("")
	return reference, nil
}

// mark returns the mark of the reference.
func (p *Publisher) mark(reference client.Object) (token.Token, error) {
	text := reference.GetAnnotations()[v1alpha1.TokenKey(p.options.Possession.Lease().Name)]
	mark, err := token.Parse(text)
	if err != nil {
		return token.Token{}, p.notGuarded(text)
	}
	return mark, nil
}

// notGuarded says that a write of the reference has left no mark of the term.
func (p *Publisher) notGuarded(mark string) error {
	return fmt.Errorf("%w by FencedLease %s: %s has the mark %q after a write under %s",
		ErrNotGuarded, p.options.Possession.Lease(), p, mark, p.possessed)
}
