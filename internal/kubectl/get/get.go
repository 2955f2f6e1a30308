// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package get lists FencedLeases.
package get

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
)

// reconnectDelay is the pause before a watch that failed is opened again.
const reconnectDelay = time.Second

// Options are those of get.
type Options struct {
	*cli.Factory

	Names             []string
	AllNamespaces     bool
	Watch             bool
	NoHeaders         bool
	ShowManagedFields bool
	Selector          string
	Output            string

	namespace string
	selector  labels.Selector
	client    client.WithWatch
}

// NewCommand returns the command get.
func NewCommand(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f}
	cmd := &cobra.Command{
		Use:   "get [NAME...]",
		Short: "List FencedLeases: who holds them, under which generation, and whether their guards are in force",
		Long: "List FencedLeases: who holds them, under which generation, and whether their guards are in force.\n\n" +
			"RENEWED is the age of the last renewal by this machine's clock and the holder's; followers compare no clocks.",
		Example: "  # All leases of the cluster\n  kubectl fencedlease get -A\n\n" +
			"  # The token of the current term, for a script\n  kubectl fencedlease get report-writer -o wide\n\n" +
			"  # Every change of one lease\n  kubectl fencedlease get report-writer -w",
		ValidArgsFunction: cli.CompleteLeases(f, -1),
		RunE:              cli.RunE(o),
	}
	cmd.Flags().BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "List the FencedLeases of all namespaces.")
	cmd.Flags().BoolVarP(&o.Watch, "watch", "w", false, "After listing, print every change until interrupted.")
	cmd.Flags().BoolVar(&o.NoHeaders, "no-headers", false, "Print no headers of columns.")
	cmd.Flags().BoolVar(&o.ShowManagedFields, "show-managed-fields", false, "Keep managedFields in JSON and YAML.")
	cmd.Flags().StringVarP(&o.Selector, "selector", "l", "", "List only FencedLeases whose labels match.")
	cmd.Flags().StringVarP(&o.Output, "output", "o", "", "Output format: json, yaml, wide or name.")
	cli.Complete(cmd, "output", outputs[1:]...)
	return cmd
}

// Complete fills in what the flags leave open.
func (o *Options) Complete(args []string) error {
	o.Names = args
	var err error
	if o.selector, err = labels.Parse(o.Selector); err != nil {
		return cli.Usagef("--selector: %v: give for instance app=reports", err)
	}
	return nil
}

// Validate refuses what contradicts itself, before any request is sent.
func (o *Options) Validate() error {
	if err := cli.OneOf("--output", o.Output, outputs...); err != nil {
		return err
	}
	switch {
	case o.AllNamespaces && len(o.Names) > 0:
		return cli.Usagef("names cannot be looked up in all namespaces: give --namespace instead of --all-namespaces")
	case o.Selector != "" && len(o.Names) > 0:
		return cli.Usagef("names and --selector exclude each other: give one of them")
	case o.Watch && len(o.Names) > 1:
		return cli.Usagef("--watch follows one FencedLease or all of them: give one name or none")
	default:
		return nil
	}
}

// Run prints the leases.
func (o *Options) Run(ctx context.Context) error {
	var err error
	if o.namespace, err = o.Namespace(); err != nil {
		return err
	}
	if o.AllNamespaces {
		o.namespace = metav1.NamespaceAll
	}
	if o.client, err = o.Client(); err != nil {
		return err
	}
	p := newPrinter(o)
	list, single, err := o.read(ctx)
	if list == nil {
		return err
	}
	if printErr := p.print(list, single); printErr != nil {
		return errors.Join(err, printErr)
	}
	if len(list.Items) == 0 && err == nil && p.human() {
		where := "in namespace " + o.namespace
		if o.namespace == "" {
			where = "in any namespace"
		}
		o.Say("No FencedLeases found %s.", where)
	}
	if !o.Watch || err != nil {
		return err
	}
	return o.watch(ctx, p, list.ResourceVersion)
}

// read reads what is to be printed from the API server. Single says that it is one lease that was asked for by name. The
// list holds what was found even if some names were not.
func (o *Options) read(ctx context.Context) (list *v1alpha1.FencedLeaseList, single bool, err error) {
	if len(o.Names) == 0 {
		list, err = cli.ListLeases(ctx, o.client, o.namespace, client.MatchingLabelsSelector{Selector: o.selector})
		return list, false, err
	}
	list = &v1alpha1.FencedLeaseList{}
	list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("FencedLeaseList"))
	var problems []error
	for _, name := range o.Names {
		lease, err := cli.GetLease(ctx, o.client, types.NamespacedName{Namespace: o.namespace, Name: name})
		if err != nil {
			problems = append(problems, err)
			continue
		}
		list.Items = append(list.Items, *lease)
		list.ResourceVersion = lease.ResourceVersion
	}
	if len(list.Items) == 0 {
		return nil, false, errors.Join(problems...)
	}
	if len(o.Names) > 1 {
		list.ResourceVersion = "" // those of several reads are not that of a list
	}
	return list, len(o.Names) == 1, errors.Join(problems...)
}

// watch prints every change after a resourceVersion until the context ends. It outlives the end of a watch and a restart of
// the API server; a change that it cannot catch up with is covered by a new list.
func (o *Options) watch(ctx context.Context, p *printer, version string) error {
	told := false
	for {
		next, err := o.watchOnce(ctx, p, version)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			version, told = next, false
			continue
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			list, _, err := o.read(ctx)
			if err != nil {
				return err
			}
			if err := p.print(list, false); err != nil {
				return err
			}
			version = list.ResourceVersion
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || cli.NotInstalled(err):
			return cli.NextStep(err, o.namespace)
		default:
			if !told {
				o.Say("The watch was interrupted (%v); connecting again until it is back.", err)
				told = true
			}
			select {
			case <-ctx.Done():
			case <-o.Clock.After(reconnectDelay):
			}
		}
	}
}

// watchOnce prints the changes of one watch and returns the version up to which it came.
func (o *Options) watchOnce(ctx context.Context, p *printer, version string) (string, error) {
	options := []client.ListOption{
		client.InNamespace(o.namespace), client.MatchingLabelsSelector{Selector: o.selector},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}},
	}
	if len(o.Names) == 1 {
		options = append(options, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, o.Names[0])})
	}
	w, err := o.client.Watch(ctx, &v1alpha1.FencedLeaseList{}, options...)
	if err != nil {
		return version, fmt.Errorf("watch FencedLeases: %w", err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return version, fmt.Errorf("watch FencedLeases: %w", apierrors.FromObject(event.Object))
		}
		lease, ok := event.Object.(*v1alpha1.FencedLease)
		if !ok {
			continue
		}
		version = lease.ResourceVersion
		if event.Type == watch.Bookmark {
			continue
		}
		lease.SetGroupVersionKind(v1alpha1.Kind)
		if err := p.print(&v1alpha1.FencedLeaseList{Items: []v1alpha1.FencedLease{*lease}}, true); err != nil {
			return version, err
		}
	}
	return version, nil
}
