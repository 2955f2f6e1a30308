// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operation says what became of a business operation, by the records of the object that it was for.
package operation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/target"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

const outputJSON = "json"

// Options are those of operation.
type Options struct {
	*cli.Factory

	Object    string
	Operation string
	Lease     string
	Output    string
}

// NewCommand returns the command operation.
func NewCommand(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f}
	cmd := &cobra.Command{
		Use:   "operation TYPE/NAME ID [--lease=LEASE]",
		Short: "Say whether an operation was applied to an object, by the object's records",
		Long: "Say whether an operation was applied to an object, by the object's records.\n\n" +
			"A guarded object keeps the newest operations that were applied to it. The answer is one of three: the operation was applied, under\n" +
			"which generation and when; or it is not recorded, so that it was not applied since the oldest record, the horizon, and nothing is\n" +
			"known of before; or the object has no records, and nothing is known at all. The object is read from the API server.\n\n" +
			"Exit codes: 0 it was applied; 3 it is not recorded; 1 nothing is known, or an error.",
		Example: "  kubectl fencedlease operation report/daily import-17\n\n" +
			"  # For a program, and an object that two leases guard\n" +
			"  kubectl fencedlease operation report/daily import-17 --lease=report-writer -o json",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(args); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.Lease, "lease", "", "Name of the FencedLease under which the operation is looked up. Needed where the object has records of several.")
	cmd.Flags().StringVarP(&o.Output, "output", "o", "", "Output format: json.")
	cli.Complete(cmd, "output", outputJSON)
	_ = cmd.RegisterFlagCompletionFunc("lease", cli.CompleteLeases(f, -1))
	return cmd
}

// Complete reads the arguments.
func (o *Options) Complete(args []string) error {
	if err := cli.OneOf("--output", o.Output, "", outputJSON); err != nil {
		return err
	}
	if len(args) != 2 || !strings.Contains(args[0], "/") {
		return cli.Usagef("give one object and one operation: TYPE/NAME ID")
	}
	o.Object, o.Operation = args[0], args[1]
	if err := fenced.CheckOperation(o.Operation); err != nil {
		return cli.Usagef("%v", err)
	}
	return nil
}

// Run looks the operation up and prints what became of it.
func (o *Options) Run(ctx context.Context) error {
	targets, err := target.Read(o.Factory, resource.FilenameOptions{}, []string{o.Object})
	if err != nil {
		return err
	}
	config, err := o.Config()
	if err != nil {
		return err
	}
	mapper, err := o.Mapper()
	if err != nil {
		return err
	}
	reader, err := client.New(config, client.Options{Mapper: mapper})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	t := targets[0]
	if err := reader.Get(ctx, client.ObjectKeyFromObject(t.Object), t.Object); err != nil {
		return fmt.Errorf("look up operation %s: %w", o.Operation, err)
	}
	lease, err := leaseOf(t.String(), t.Object.GetAnnotations(), o.Lease)
	if err != nil {
		return err
	}
	a := answer{
		Namespace: t.Object.GetNamespace(), Object: t.String(), Operation: o.Operation, Lease: lease,
		outcome: fenced.OutcomeOf(t.Object.GetAnnotations(), lease, o.Operation),
	}
	if err := a.print(o.Out, o.Output); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return a.exit()
}

// leaseOf returns the lease whose records count: the one that was asked for, or the only one that has any, or none.
func leaseOf(object string, annotations map[string]string, asked string) (string, error) {
	if asked != "" {
		return asked, nil
	}
	var names []string
	for key := range annotations {
		if name, found := strings.CutPrefix(key, v1alpha1.OperationsPrefix); found {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 0:
		return "", nil
	case 1:
		return names[0], nil
	default:
		slices.Sort(names)
		return "", cli.Usagef("%s has records of several FencedLeases (%s): say of which one, --lease=LEASE", object, strings.Join(names, ", "))
	}
}
