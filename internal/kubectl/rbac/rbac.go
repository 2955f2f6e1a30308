// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac prints the roles that a worker needs to lead by a FencedLease and to write what it guards.
package rbac

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/guarded"
)

// The carriers.
const (
	carrierRequest    = "request"
	carrierAnnotation = "annotation"
	carrierCredential = "credential"
)

// The electors.
const (
	electorLeader       = "leader"
	electorResourceLock = "resourcelock"
	electorNone         = "none"
)

// defaultVerbs are what most workers do to the objects that they write.
var defaultVerbs = []string{"get", "create", "update", "patch", "delete"}

// knownVerbs are what --verbs takes.
var knownVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// Options are those of rbac.
type Options struct {
	*cli.Factory

	Name           string
	ServiceAccount string
	Carrier        string
	Elector        string
	Verbs          []string
}

// NewCommand returns the command rbac.
func NewCommand(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f}
	cmd := &cobra.Command{
		Use:   "rbac NAME --serviceaccount=SERVICEACCOUNT [--carrier=CARRIER]",
		Short: "Print the exact roles that a worker needs to lead by a FencedLease and to write what it guards",
		Long: "Print, as YAML, the exact roles that a worker needs to lead by a FencedLease and to write what it guards.\n\n" +
			"The resources are those of the lease's guards, with the subresources that the API server serves. --carrier says how the worker's\n" +
			"tokens travel:\n" +
			"  request      as an extra of its own user, whom it may then impersonate, and nobody else\n" +
			"  annotation   in the objects themselves, which needs no right of its own\n" +
			"  credential   by service-account tokens that the worker requests for each term\n\n" +
			"--elector says how the worker leads: leader is pkg/leader and the command run, resourcelock is pkg/resourcelock, and none is a\n" +
			"worker that is handed its tokens.",
		Example: "  kubectl fencedlease rbac report-writer --serviceaccount=worker | kubectl apply -f -\n\n" +
			"  # A worker that only patches, with tokens in the objects\n" +
			"  kubectl fencedlease rbac report-writer --serviceaccount=reports:worker --carrier=annotation --verbs=get,patch",
		ValidArgsFunction: cli.CompleteLeases(f, 1),
		RunE:              cli.RunE(o),
	}
	cmd.Flags().StringVar(&o.Name, "lease", "", "The FencedLease, instead of the argument.")
	cmd.Flags().StringVar(&o.ServiceAccount, "serviceaccount", "", "The worker's service account: NAME in the lease's namespace, or NAMESPACE:NAME.")
	cmd.Flags().StringVar(&o.Carrier, "carrier", carrierRequest, "How the worker's tokens travel: request, annotation or credential.")
	cmd.Flags().StringVar(&o.Elector, "elector", electorLeader, "How the worker leads: leader, resourcelock or none.")
	cmd.Flags().StringSliceVar(&o.Verbs, "verbs", defaultVerbs, "What the worker does to the guarded objects.")
	cli.Complete(cmd, "carrier", carrierRequest, carrierAnnotation, carrierCredential)
	cli.Complete(cmd, "elector", electorLeader, electorResourceLock, electorNone)
	cli.Complete(cmd, "verbs", knownVerbs...)
	return cmd
}

// Complete reads the arguments.
func (o *Options) Complete(args []string) (err error) {
	switch {
	case o.Name == "":
		o.Name, err = cli.OneName(args, "FencedLease")
	case len(args) > 0:
		err = cli.Usagef("the FencedLease is given as --lease and as an argument: give one of them")
	}
	return err
}

// Validate refuses what cannot work, before any request is sent.
func (o *Options) Validate() error {
	if err := cli.OneOf("--carrier", o.Carrier, carrierRequest, carrierAnnotation, carrierCredential); err != nil {
		return err
	}
	if err := cli.OneOf("--elector", o.Elector, electorLeader, electorResourceLock, electorNone); err != nil {
		return err
	}
	for _, verb := range o.Verbs {
		if err := cli.OneOf("--verbs", verb, knownVerbs...); err != nil {
			return err
		}
	}
	namespace, name, qualified := strings.Cut(o.ServiceAccount, ":")
	switch {
	case o.ServiceAccount == "":
		return cli.Usagef("--serviceaccount is missing: say which service account the worker has, as NAME or NAMESPACE:NAME")
	case qualified && (namespace == "" || name == ""):
		return cli.Usagef("--serviceaccount=%s has an empty part: give NAME or NAMESPACE:NAME", o.ServiceAccount)
	case o.Carrier == carrierCredential && o.Elector == electorNone:
		return cli.Usagef("--carrier=credential needs an elector that requests tokens for its terms: leave --elector=none out")
	default:
		return nil
	}
}

// Run prints the roles.
func (o *Options) Run(ctx context.Context) error {
	namespace, err := o.Namespace()
	if err != nil {
		return err
	}
	c, err := o.Client()
	if err != nil {
		return err
	}
	lease, err := cli.GetLease(ctx, c, types.NamespacedName{Namespace: namespace, Name: o.Name})
	if err != nil {
		return err
	}
	served, err := o.served(lease)
	if err != nil {
		return err
	}
	w := worker{
		lease: lease, namespace: namespace, serviceAccount: o.ServiceAccount, carrier: o.Carrier, elector: o.Elector,
		verbs: o.Verbs, served: served,
	}
	if ns, name, qualified := strings.Cut(o.ServiceAccount, ":"); qualified {
		w.namespace, w.serviceAccount = ns, name
	}
	return w.print(o.Out)
}

// served finds out by discovery which verbs the API server serves on the guarded resources and their subresources. A kind
// that is not installed is left out.
func (o *Options) served(lease *v1alpha1.FencedLease) (map[resource][]string, error) {
	mapper, err := o.Mapper()
	if err != nil {
		return nil, err
	}
	d, err := o.Flags.ToDiscoveryClient()
	if err != nil {
		return nil, fmt.Errorf("read the kinds of the cluster: %w", err)
	}
	served := map[resource][]string{}
	for _, g := range lease.Spec.Guards {
		for _, kind := range guarded.Kinds(g) {
			if err := readServed(mapper, d, kind, served); err != nil {
				return nil, err
			}
		}
	}
	return served, nil
}

func readServed(mapper meta.RESTMapper, d discovery.DiscoveryInterface, kind schema.GroupResource, served map[resource][]string) error {
	gvr, err := mapper.ResourceFor(kind.WithVersion(""))
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find kind of %s: %w", kind, err)
	}
	list, err := d.ServerResourcesForGroupVersion(gvr.GroupVersion().String())
	if err != nil {
		return fmt.Errorf("read the resources of %s: %w", gvr.GroupVersion(), err)
	}
	for i := range list.APIResources {
		name, subresource, _ := strings.Cut(list.APIResources[i].Name, "/")
		if name == kind.Resource {
			served[resource{kind, subresource}] = slices.Clone(list.APIResources[i].Verbs)
		}
	}
	return nil
}
