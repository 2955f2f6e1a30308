// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package write

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/send"
	"github.com/fencedlease/fencedlease/internal/kubectl/target"
)

// PatchOptions are those of patch.
type PatchOptions struct {
	Options

	Patch       string
	PatchFile   string
	Type        string
	Subresource string

	patch []byte
}

// patchTypes are those that custom resources take.
func patchTypes() map[string]types.PatchType {
	return map[string]types.PatchType{"merge": types.MergePatchType, "json": types.JSONPatchType}
}

// NewPatchCommand returns the command patch.
func NewPatchCommand(f *cli.Factory) *cobra.Command {
	o := &PatchOptions{Options: Options{Factory: f}}
	cmd := &cobra.Command{
		Use:   "patch TYPE/NAME -p PATCH --token=TOKEN",
		Short: "Patch objects, their status or their scale with a fencing token",
		Long: "Patch objects, their status or their scale with a fencing token." + longCarriers + "\n\n" +
			"A scale shows no annotations, so it takes its token with the request only.",
		Example: "  kubectl fencedlease patch report/daily -p '{\"spec\":{\"value\":\"7\"}}' --token=48215.k3v9x2ab\n\n" +
			"  kubectl fencedlease patch report/daily --subresource=status -p '{\"status\":{\"phase\":\"Done\"}}' --token=48215.k3v9x2ab",
		RunE: o.run(o),
	}
	target.AddFileFlags(cmd.Flags(), &o.Files, "The files that name the objects to patch; - is standard input.")
	cmd.Flags().StringVarP(&o.Patch, "patch", "p", "", "The patch, as JSON or YAML.")
	cmd.Flags().StringVar(&o.PatchFile, "patch-file", "", "A file with the patch; - is standard input.")
	cmd.Flags().StringVar(&o.Type, "type", "merge", "The type of the patch: merge or json.")
	cmd.Flags().StringVar(&o.Subresource, "subresource", "", "Patch a subresource: status or scale.")
	cli.Complete(cmd, "type", "merge", "json")
	cli.Complete(cmd, "subresource", send.SubresourceStatus, send.SubresourceScale)
	o.addFlags(cmd)
	return cmd
}

func (o *PatchOptions) complete([]string) error {
	if err := cli.OneOf("--type", o.Type, "merge", "json"); err != nil {
		return err
	}
	if err := cli.OneOf("--subresource", o.Subresource, "", send.SubresourceStatus, send.SubresourceScale); err != nil {
		return err
	}
	text, err := o.text()
	if err != nil {
		return err
	}
	if o.patch, err = yaml.YAMLToJSON(text); err != nil {
		return cli.Usagef("the patch is neither JSON nor YAML: %v", err)
	}
	return nil
}

func (o *PatchOptions) text() ([]byte, error) {
	switch {
	case o.Patch != "" && o.PatchFile != "":
		return nil, cli.Usagef("--patch and --patch-file exclude each other: give one of them")
	case o.Patch != "":
		return []byte(o.Patch), nil
	case o.PatchFile == "":
		return nil, cli.Usagef("the patch is missing: give it with -p or --patch-file")
	}
	var text []byte
	var err error
	if o.PatchFile == "-" {
		text, err = io.ReadAll(o.In)
	} else {
		text, err = os.ReadFile(o.PatchFile)
	}
	if err != nil {
		return nil, fmt.Errorf("read patch: %w", err)
	}
	return text, nil
}

func (o *PatchOptions) write(_ context.Context, t target.Target) (send.Write, error) {
	return send.Write{
		Verb: send.Patch, Subresource: o.Subresource, Object: t.Object,
		Patch: o.patch, PatchType: patchTypes()[o.Type], FieldManager: send.FieldManager,
	}, nil
}

func (o *PatchOptions) names() (verb, done string) { return "patch", "patched" }
