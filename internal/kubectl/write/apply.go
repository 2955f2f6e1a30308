// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package write

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/send"
	"github.com/fencedlease/fencedlease/internal/kubectl/target"
)

// ApplyOptions are those of apply.
type ApplyOptions struct {
	Options

	FieldManager   string
	ForceConflicts bool
}

// NewApplyCommand returns the command apply.
func NewApplyCommand(f *cli.Factory) *cobra.Command {
	o := &ApplyOptions{Options: Options{Factory: f}}
	cmd := &cobra.Command{
		Use:   "apply -f FILE --token=TOKEN",
		Short: "Apply objects with a fencing token, by server-side apply",
		Long: "Apply objects with a fencing token, by server-side apply." + longCarriers + "\n\n" +
			"With --carrier=annotation the field manager comes to own the annotation of the mark. If another one owns it, the apply is a\n" +
			"conflict unless --force-conflicts is given.",
		Example: "  kubectl fencedlease apply -f report.yaml --token=48215.k3v9x2ab\n\n" +
			"  # An object that two leases guard\n" +
			"  kubectl fencedlease apply -f report.yaml --token=report-writer=48215.k3v9x2ab --token=auditor=48190.a1b2c3d4",
		Args: cli.NoArgs,
		RunE: o.run(o),
	}
	target.AddFileFlags(cmd.Flags(), &o.Files, "The files with the objects to apply; - is standard input.")
	cmd.Flags().StringVar(&o.FieldManager, "field-manager", send.FieldManager, "Name of the manager that owns the applied fields.")
	cmd.Flags().BoolVar(&o.ForceConflicts, "force-conflicts", false, "Take fields over that other managers own.")
	o.addFlags(cmd)
	return cmd
}

func (o *ApplyOptions) complete([]string) error {
	switch {
	case !target.HasFiles(o.Files):
		return cli.Usagef("the file is missing: give it with -f, or - for standard input")
	case o.FieldManager == "":
		return cli.Usagef("--field-manager is empty: give the name of the manager that owns the applied fields")
	default:
		return nil
	}
}

func (o *ApplyOptions) write(_ context.Context, t target.Target) (send.Write, error) {
	return send.Write{Verb: send.Apply, Object: t.Object, FieldManager: o.FieldManager, Force: o.ForceConflicts}, nil
}

func (o *ApplyOptions) names() (verb, done string) { return "apply", "applied" }
