// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package write

import (
	"context"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/send"
	"github.com/fencedlease/fencedlease/internal/kubectl/target"
)

// DeleteOptions are those of delete.
type DeleteOptions struct {
	Options

	Cascade string
	UID     string
}

// policies are what --cascade takes.
func policies() map[string]metav1.DeletionPropagation {
	return map[string]metav1.DeletionPropagation{
		"background": metav1.DeletePropagationBackground,
		"foreground": metav1.DeletePropagationForeground,
		"orphan":     metav1.DeletePropagationOrphan,
	}
}

// NewDeleteCommand returns the command delete.
func NewDeleteCommand(f *cli.Factory) *cobra.Command {
	o := &DeleteOptions{Options: Options{Factory: f}}
	cmd := &cobra.Command{
		Use:   "delete (TYPE/NAME... | -f FILE) --token=TOKEN",
		Short: "Delete objects with a fencing token",
		Long: "Delete objects with a fencing token. The command does not wait until finalizers have done their work." + longCarriers + "\n\n" +
			"A delete has no body, so that --carrier=annotation takes two requests: one that writes the intent into the mark, and the\n" +
			"delete, on condition that nothing was written in between.",
		Example: "  kubectl fencedlease delete report/daily --token=48215.k3v9x2ab",
		RunE:    o.run(o),
	}
	target.AddFileFlags(cmd.Flags(), &o.Files, "The files that name the objects to delete; - is standard input.")
	cmd.Flags().StringVar(&o.Cascade, "cascade", "background", "What becomes of the dependents: background, foreground or orphan.")
	cli.Complete(cmd, "cascade", "background", "foreground", "orphan")
	cmd.Flags().StringVar(&o.UID, "uid", "", "Delete the object only if it has this uid. Needed with --operation: a deleted object keeps no records, and one of its name may be created later.")
	o.addFlags(cmd)
	return cmd
}

func (o *DeleteOptions) complete([]string) error {
	if o.Operation != "" && o.UID == "" {
		return cli.Usagef("--operation needs --uid: say which object is to be deleted, as one of its name may be created later")
	}
	return cli.OneOf("--cascade", o.Cascade, "background", "foreground", "orphan")
}

func (o *DeleteOptions) write(_ context.Context, t target.Target) (send.Write, error) {
	return send.Write{Verb: send.Delete, Object: t.Object, Propagation: policies()[o.Cascade], UID: types.UID(o.UID)}, nil
}

func (o *DeleteOptions) names() (verb, done string) { return "delete", "deleted" }
