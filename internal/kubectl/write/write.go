// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package write holds the commands that write objects with a fencing token: apply, patch, annotate and delete.
package write

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/send"
	"github.com/fencedlease/fencedlease/internal/kubectl/target"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

// Options are what all writing commands have.
type Options struct {
	*cli.Factory

	Files resource.FilenameOptions
	Args  []string
	Token []string
	// Operation is the id of the business operation that the writes are, or empty.
	Operation string
	Carrier   string
	DryRun    string
	Output    string

	tokens cli.Tokens
	dryRun cli.DryRun
	config *rest.Config
	client client.Client
	mapper meta.RESTMapper
}

// command is a writing command.
type command interface {
	// complete reads the command's own flags and arguments.
	complete(args []string) error
	// write returns what is sent for an object.
	write(ctx context.Context, t target.Target) (send.Write, error)
	// names returns the command's name, and what is said to have been done.
	names() (verb, done string)
}

// longCarriers explains the flags that all writing commands have.
const longCarriers = "\n\nThe token travels with the request, as an extra of your own user: that needs the right to impersonate yourself with it, which\n" +
	"`kubectl fencedlease rbac` prints. With --carrier=annotation it travels in the object instead and needs no right.\n\n" +
	"A write that the fence refuses has the exit code 2."

// addFlags adds the flags that all writing commands have.
func (o *Options) addFlags(cmd *cobra.Command) {
	cli.AddTokenFlag(cmd.Flags(), &o.Token)
	cmd.Flags().StringVar(&o.Operation, "operation", "", "Id of the operation that the write is. An object that records it is not written again, under whichever generation.")
	cmd.Flags().StringVar(&o.Carrier, "carrier", string(send.CarrierRequest), "How the token travels: request or annotation.")
	cmd.Flags().StringVarP(&o.Output, "output", "o", "", "Output format: json, yaml or name.")
	cli.AddDryRunFlag(cmd, &o.DryRun)
	cli.Complete(cmd, "carrier", send.Carriers()...)
	cli.Complete(cmd, "output", "json", "yaml", "name")
}

// run is the RunE of a writing command.
func (o *Options) run(c command) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := o.Complete(args); err != nil {
			return err
		}
		if err := c.complete(args); err != nil {
			return err
		}
		return o.Run(cmd.Context(), c)
	}
}

// Complete reads the flags.
func (o *Options) Complete(args []string) (err error) {
	o.Args = args
	if err := cli.OneOf("--carrier", o.Carrier, send.Carriers()...); err != nil {
		return err
	}
	if err := cli.OneOf("--output", o.Output, "", "json", "yaml", "name"); err != nil {
		return err
	}
	if o.dryRun, err = cli.ParseDryRun(o.DryRun); err != nil {
		return err
	}
	if o.tokens, err = cli.ParseTokens(o.Token, o.Getenv); err != nil {
		return err
	}
	if o.Operation != "" {
		if err := fenced.CheckOperation(o.Operation); err != nil {
			return cli.Usagef("--operation: %v", err)
		}
	}
	if o.tokens.IsZero() {
		return cli.Usagef("--token is missing: give the token of the lease that guards the object, as `kubectl fencedlease acquire` prints it " +
			"(kubectl itself writes without a token)")
	}
	return nil
}

// Run sends one write for each object. All are tried, whatever becomes of the others.
func (o *Options) Run(ctx context.Context, c command) (err error) {
	if o.config, err = o.Config(); err != nil {
		return err
	}
	if o.client, err = cli.NewClient(o.config); err != nil {
		return err
	}
	if o.mapper, err = o.Mapper(); err != nil {
		return err
	}
	targets, err := target.Read(o.Factory, o.Files, o.Args)
	if err != nil {
		return err
	}
	verb, done := c.names()
	printer, err := o.printer(done)
	if err != nil {
		return err
	}
	var problems []error
	for _, t := range targets {
		if err := o.writeOne(ctx, c, t, printer); err != nil {
			problems = append(problems, send.Failed(verb, t, err))
		}
	}
	return errors.Join(problems...)
}

func (o *Options) writeOne(ctx context.Context, c command, t target.Target, printer printers.ResourcePrinter) error {
	w, err := c.write(ctx, t)
	if err != nil {
		return err
	}
	w.DryRun = o.dryRun
	tokens, err := send.TokensFor(ctx, o.client, o.tokens, t, w.Subresource)
	if err != nil {
		return err
	}
	writer, err := send.NewClient(o.config, o.mapper, t.Mapping.Resource.GroupResource(), send.Carrier(o.Carrier), tokens)
	if err != nil {
		return err
	}
	written, before, err := o.send(ctx, w, writer)
	if err != nil {
		return err
	}
	if before && o.Output == "" {
		_, done := c.names()
		printer = &printers.NamePrinter{Operation: done + " before" + o.dryRun.Suffix()}
	}
	if written == nil || o.Output == "" || o.Output == "name" {
		written = t.Object // also where the answer is a Scale
	}
	if err := printer.PrintObj(written, o.Out); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// send sends a write, as the operation if there is one, and reports whether that was applied before.
func (o *Options) send(ctx context.Context, w send.Write, c client.Client) (written *unstructured.Unstructured, before bool, err error) {
	if o.Operation == "" {
		written, err = w.Send(ctx, c)
		return written, false, err
	}
	ctx, operation, err := fenced.WithOperation(ctx, o.Operation)
	if err != nil {
		return nil, false, err
	}
	if written, err = w.Send(ctx, c); err != nil {
		return nil, false, err
	}
	record, before := operation.Replayed()
	if before {
		o.Say("Operation %s was applied before, under generation %d: nothing was changed.", record.Operation, record.Generation)
	}
	return written, before, nil
}

// printer prints what was written, or that it was.
func (o *Options) printer(done string) (printers.ResourcePrinter, error) {
	switch o.Output {
	case "":
		return &printers.NamePrinter{Operation: done + o.dryRun.Suffix()}, nil
	case "name":
		return &printers.NamePrinter{ShortOutput: true}, nil
	default:
		return genericclioptions.NewJSONYamlPrintFlags().ToPrinter(o.Output)
	}
}
