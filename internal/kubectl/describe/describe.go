// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package describe tells everything about one FencedLease.
package describe

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
)

// shownEvents is how many events are shown, the latest.
const shownEvents = 10

// Options are those of describe.
type Options struct {
	*cli.Factory

	Name       string
	ShowEvents bool

	client   client.WithWatch
	metadata metadata.Interface
	mapper   meta.RESTMapper
}

// NewCommand returns the command describe.
func NewCommand(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f}
	cmd := &cobra.Command{
		Use:   "describe NAME",
		Short: "Tell everything about one FencedLease: possession, guards, guarded objects, conditions, events",
		Long: "Tell everything about one FencedLease: possession, guards, guarded objects and their marks, conditions, events.\n\n" +
			"Guarded objects are counted by listing their metadata. Refusals of writes are answered to their writers and leave no\n" +
			"event: see what a write would be answered with explain, and how many there were in the manager's metrics.",
		Example:           "  kubectl fencedlease describe report-writer -n reports",
		ValidArgsFunction: cli.CompleteLeases(f, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(args); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&o.ShowEvents, "show-events", true, "Show the latest events about the FencedLease.")
	return cmd
}

// Complete reads the arguments.
func (o *Options) Complete(args []string) (err error) {
	o.Name, err = cli.OneName(args, "FencedLease")
	return err
}

// Run prints the description. What cannot be read is said in its place.
func (o *Options) Run(ctx context.Context) error {
	namespace, err := o.Namespace()
	if err != nil {
		return err
	}
	if o.client, err = o.Client(); err != nil {
		return err
	}
	if o.metadata, err = o.Metadata(); err != nil {
		return err
	}
	if o.mapper, err = o.Mapper(); err != nil {
		return err
	}
	lease, err := cli.GetLease(ctx, o.client, types.NamespacedName{Namespace: namespace, Name: o.Name})
	if err != nil {
		return err
	}
	d := &description{lease: lease, now: o.Clock.Now(), counts: o.count(ctx, lease)}
	if o.ShowEvents {
		d.events, d.eventsProblem = o.events(ctx, lease)
		d.withEvents = true
	}
	return d.print(o.Out)
}

// events reads the latest events about the lease from the API server, the oldest first.
func (o *Options) events(ctx context.Context, lease *v1alpha1.FencedLease) ([]corev1.Event, error) {
	list := &corev1.EventList{}
	err := o.client.List(ctx, list, client.InNamespace(lease.Namespace), client.MatchingFieldsSelector{Selector: fields.AndSelectors(
		fields.OneTermEqualSelector("involvedObject.kind", v1alpha1.Kind.Kind),
		fields.OneTermEqualSelector("involvedObject.name", lease.Name),
	)})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int {
		return cmp.Or(lastSeen(&a).Compare(lastSeen(&b)), cmp.Compare(a.Name, b.Name))
	})
	if extra := len(list.Items) - shownEvents; extra > 0 {
		list.Items = list.Items[extra:]
	}
	return list.Items, nil
}
