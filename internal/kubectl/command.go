// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubectl is the plugin `kubectl fencedlease`: its root command and how it ends. Each command is a package below.
package kubectl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/completion"
	"github.com/fencedlease/fencedlease/internal/kubectl/describe"
	"github.com/fencedlease/fencedlease/internal/kubectl/explain"
	"github.com/fencedlease/fencedlease/internal/kubectl/get"
	"github.com/fencedlease/fencedlease/internal/kubectl/operation"
	"github.com/fencedlease/fencedlease/internal/kubectl/possess"
	"github.com/fencedlease/fencedlease/internal/kubectl/rbac"
	"github.com/fencedlease/fencedlease/internal/kubectl/run"
	"github.com/fencedlease/fencedlease/internal/kubectl/write"
	"github.com/fencedlease/fencedlease/internal/version"
)

const (
	groupLook  = "look"
	groupHold  = "hold"
	groupWrite = "write"
)

// NewCommand returns the root command.
func NewCommand(f *cli.Factory) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-fencedlease",
		Short: "Look at FencedLeases, hold them, and write under them",
		Long: "Look at FencedLeases, hold them, and write under them.\n\n" +
			"A FencedLease records who leads, under a generation that grows with every change of holder. Writes to the resources that it\n" +
			"guards present a token, GENERATION.TERM, and the API server refuses those of earlier holders.\n\n" +
			"Exit codes: 0 done; 1 error, or no telling; 2 a write was refused or, to explain, would be, or another holds the lease;\n" +
			"3 the operation that was looked up is not recorded; 128 and the number of a signal that ended the command. run ends with the exit code of its command.\n\n" +
			"Data goes to standard output, messages go to standard error. --token is the fencing token: a bearer token for the API\n" +
			"server belongs into the kubeconfig.",
		Annotations:                map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl fencedlease"},
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 2,
		SilenceUsage:               true,
		DisableAutoGenTag:          true,
		CompletionOptions:          cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:                       cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	root.SetIn(f.In)
	root.SetOut(f.Out)
	root.SetErr(f.ErrOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usagef("%v", err) })
	f.Flags.AddFlags(root.PersistentFlags())
	root.AddGroup(
		&cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupHold, Title: "Hold a lease:"},
		&cobra.Group{ID: groupWrite, Title: "Write under a lease:"},
	)
	for group, commands := range map[string][]*cobra.Command{
		groupLook:  {get.NewCommand(f), describe.NewCommand(f), explain.NewCommand(f), operation.NewCommand(f)},
		groupHold:  {possess.NewAcquireCommand(f), possess.NewReleaseCommand(f), run.NewCommand(f), rbac.NewCommand(f)},
		groupWrite: {write.NewApplyCommand(f), write.NewPatchCommand(f), write.NewAnnotateCommand(f), write.NewDeleteCommand(f)},
		"":         {completion.NewCommand(f), newVersionCommand(f)},
	} {
		for _, cmd := range commands {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	_ = root.RegisterFlagCompletionFunc("namespace", cli.CompleteNamespaces(f))
	return root
}

func unknownCommand(root *cobra.Command, name string) error {
	text := fmt.Sprintf("unknown command %q", name)
	if near := root.SuggestionsFor(name); len(near) > 0 {
		text += ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return cli.Usagef("%s", text)
}

func newVersionCommand(f *cli.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of the plugin",
		Args:  cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(f.Out, "kubectl-fencedlease", version.Long())
			return err
		},
	}
}
