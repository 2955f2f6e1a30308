// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explain says whether a write would pass the fence, by which rule, and what to do next.
//
// A write is sent to the API server as a dry run, whose answer is the verdict: it runs the same admission as the write
// itself. Without a write, the verdict is that of package fence on the object and the leases as they are read now.
package explain

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/send"
	"github.com/fencedlease/fencedlease/internal/kubectl/target"
)

// What --verb takes besides the verbs of package send.
const (
	verbNone   = ""
	verbStatus = "status"
	verbScale  = "scale"
)

// verbs are what --verb takes.
var verbs = []string{string(send.Create), string(send.Update), string(send.Patch), string(send.Apply), verbStatus, verbScale, string(send.Delete)}

// noReplicas says that --replicas was not given.
const noReplicas = -1

// Options are those of explain.
type Options struct {
	*cli.Factory

	Files          resource.FilenameOptions
	Args           []string
	Token          []string
	Carrier        string
	Verb           string
	Patch          string
	PatchType      string
	Replicas       int
	FieldManager   string
	ForceConflicts bool

	tokens cli.Tokens
	config *rest.Config
	client client.Client
	reader client.Client
	mapper meta.RESTMapper
}

// NewCommand returns the command explain.
func NewCommand(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f}
	cmd := &cobra.Command{
		Use:   "explain (-f FILE | TYPE/NAME) [--verb=VERB] [--token=TOKEN]",
		Short: "Say whether a write would pass the fence, by which rule, and what to do next",
		Long: "Say whether a write would pass the fence, by which rule, and what to do next.\n\n" +
			"With a write (-f, -p, --replicas or --verb) the API server tries it as a dry run: nothing is stored, and the answer is the one that\n" +
			"the write itself would get now. --verb is create, update, patch, apply, status, scale or delete; it is apply for a file. A verb that\n" +
			"is given no content changes nothing but is judged all the same.\n\n" +
			"Without a write the object and the leases are read, and the answer says what a change of the object by you would need.\n\n" +
			"Use --as, --as-group and --as-user-extra to ask for somebody else.\n\n" +
			"Exit codes: 0 it would pass; 2 it would be refused, by the fence or by anything else; 1 there is no telling.",
		Example: "  # What would be needed to write this object?\n" +
			"  kubectl fencedlease explain report/daily\n\n" +
			"  # Would this be applied under this token?\n" +
			"  kubectl fencedlease explain -f report.yaml --token=48215.k3v9x2ab\n\n" +
			"  # May the worker delete it without one?\n" +
			"  kubectl fencedlease explain report/daily --verb=delete --as=system:serviceaccount:reports:worker",
		RunE: cli.RunE(o),
	}
	target.AddFileFlags(cmd.Flags(), &o.Files, "The files with the objects to write; - is standard input.")
	cli.AddTokenFlag(cmd.Flags(), &o.Token)
	cmd.Flags().StringVar(&o.Carrier, "carrier", string(send.CarrierRequest), "How the token travels: request or annotation.")
	cmd.Flags().StringVar(&o.Verb, "verb", "", "What the write does: create, update, patch, apply, status, scale or delete.")
	cmd.Flags().StringVarP(&o.Patch, "patch", "p", "", "The patch, as JSON or YAML, of the verbs patch and status.")
	cmd.Flags().StringVar(&o.PatchType, "type", "merge", "The type of the patch: merge or json.")
	cmd.Flags().IntVar(&o.Replicas, "replicas", noReplicas, "The number of replicas of the verb scale.")
	cmd.Flags().StringVar(&o.FieldManager, "field-manager", send.FieldManager, "Name of the manager that owns the written fields.")
	cmd.Flags().BoolVar(&o.ForceConflicts, "force-conflicts", false, "Take fields over that other managers own, with the verb apply.")
	cli.Complete(cmd, "carrier", send.Carriers()...)
	cli.Complete(cmd, "verb", verbs...)
	cli.Complete(cmd, "type", "merge", "json")
	return cmd
}

// Complete reads the arguments and finds out which verb is meant.
func (o *Options) Complete(args []string) (err error) {
	o.Args = args
	if o.tokens, err = cli.ParseTokens(o.Token, o.Getenv); err != nil {
		return err
	}
	if o.Verb != verbNone {
		return nil
	}
	switch {
	case o.Patch != "":
		o.Verb = string(send.Patch)
	case o.Replicas != noReplicas:
		o.Verb = verbScale
	case target.HasFiles(o.Files):
		o.Verb = string(send.Apply)
	}
	return nil
}

// Validate refuses what contradicts itself, before any request is sent.
func (o *Options) Validate() error {
	if err := cli.OneOf("--carrier", o.Carrier, send.Carriers()...); err != nil {
		return err
	}
	if err := cli.OneOf("--type", o.PatchType, "merge", "json"); err != nil {
		return err
	}
	if o.Verb != verbNone {
		if err := cli.OneOf("--verb", o.Verb, verbs...); err != nil {
			return err
		}
	}
	switch {
	case len(o.Args) == 0 && !target.HasFiles(o.Files):
		return cli.Usagef("the object is missing: give it as TYPE/NAME, or as a file with -f")
	case o.Patch != "" && o.Verb != string(send.Patch) && o.Verb != verbStatus:
		return cli.Usagef("--patch goes with the verbs patch and status: leave it out for %s", o.Verb)
	case o.Replicas != noReplicas && o.Verb != verbScale:
		return cli.Usagef("--replicas goes with the verb scale: leave it out for %s", o.Verb)
	case o.Replicas < noReplicas:
		return cli.Usagef("--replicas=%d is negative: give how many there should be", o.Replicas)
	case o.Verb == string(send.Create) && !target.HasFiles(o.Files):
		return cli.Usagef("the verb create needs the object: give it as a file with -f")
	case o.Verb == verbScale && o.Carrier == string(send.CarrierAnnotation) && !o.tokens.IsZero():
		return cli.Usagef("a scale shows no annotations, so that none can carry a token: use --carrier=request")
	default:
		return nil
	}
}

// Run explains the write of each object. The exit code is that of the worst answer: no telling, then a refusal.
func (o *Options) Run(ctx context.Context) (err error) {
	if o.config, err = o.Config(); err != nil {
		return err
	}
	if o.client, err = cli.NewClient(o.config); err != nil {
		return err
	}
	if o.mapper, err = o.Mapper(); err != nil {
		return err
	}
	if o.reader, err = client.New(o.config, client.Options{Mapper: o.mapper}); err != nil {
		return err
	}
	targets, err := target.Read(o.Factory, o.Files, o.Args)
	if err != nil {
		return err
	}
	var problems []error
	refused := false
	for i, t := range targets {
		if i > 0 {
			cli.Line(o.Out, "")
		}
		e, err := o.explain(ctx, t)
		if err != nil {
			problems = append(problems, send.Failed("explain", t, err))
			continue
		}
		if err := e.print(o.Out); err != nil {
			return err
		}
		refused = refused || e.verdict.refused
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	if refused {
		return &cli.CodeError{Code: cli.ExitRefused}
	}
	return nil
}
