// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
	"github.com/fencedlease/fencedlease/test/env"
)

// Issuer hands out terms.
type Issuer interface {
	Next(ctx context.Context) (token.Token, error)
}

// Counter is an issuer that counts.
type Counter struct{ last atomic.Int64 }

// Next hands out the next term.
func (c *Counter) Next(context.Context) (token.Token, error) {
	return token.Token{Generation: c.last.Add(1), Term: env.NewTerm()}, nil
}

// Lease is an issuer that takes a FencedLease on an API server, whoever holds it.
type Lease struct {
	cluster *env.Environment
	client  client.Client
	name    client.ObjectKey
	backup  string
}

// NewLease creates a FencedLease on a control plane that has no manager.
func NewLease(ctx context.Context, cluster *env.Environment) (*Lease, error) {
	c, err := env.Client(cluster.Config())
	if err != nil {
		return nil, err
	}
	if err := cluster.InstallCRDs(ctx); err != nil {
		return nil, err
	}
	lease := env.NewLease("default", "report-writer")
	if err := env.CreateLease(ctx, c, lease); err != nil {
		return nil, err
	}
	return &Lease{cluster: cluster, client: c, name: client.ObjectKeyFromObject(lease), backup: filepath.Join(cluster.Dir(), "lease-backup")}, nil
}

// Next acquires the lease.
func (l *Lease) Next(ctx context.Context) (token.Token, error) {
	lease := &v1alpha1.FencedLease{}
	lease.Namespace, lease.Name = l.name.Namespace, l.name.Name
	if err := env.Acquire(ctx, l.client, lease, "leader"); err != nil {
		return token.Token{}, err
	}
	return token.Token{Generation: ptr.Deref(lease.Status.Generation, 0), Term: ptr.Deref(lease.Status.Term, "")}, nil
}

// Save makes a backup of the store.
func (l *Lease) Save(ctx context.Context) error { return l.cluster.EtcdSnapshot(ctx, l.backup) }

// Load puts the backup back.
func (l *Lease) Load(ctx context.Context) error { return l.cluster.RestoreSnapshot(ctx, l.backup, 0) }

// Raise has the next term begin above a generation, as docs/destinations.md says.
func (l *Lease) Raise(ctx context.Context, generation int64) error {
	lease := env.NewLease(l.name.Namespace, l.name.Name)
	patch := fmt.Appendf(nil, `{"spec":{"minGeneration":%d}}`, generation)
	if err := l.client.Patch(ctx, lease, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return fmt.Errorf("raise the lease: %w", err)
	}
	return nil
}
