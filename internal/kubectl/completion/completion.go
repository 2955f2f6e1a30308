// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package completion prints scripts by which shells complete the plugin's arguments.
package completion

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
)

// kubectlScript is what kubectl runs to complete the arguments of the plugin. It is found by its name.
const kubectlScript = `#!/bin/sh
# Completion of "kubectl fencedlease": a program called kubectl_complete-fencedlease on the PATH.
exec kubectl-fencedlease __complete "$@"
`

// shells are what the command takes.
var shells = []string{"bash", "zsh", "fish", "powershell", "kubectl"}

// NewCommand returns the command completion.
func NewCommand(f *cli.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "completion (bash | zsh | fish | powershell | kubectl)",
		Short: "Print a completion script",
		Long: "Print a completion script.\n\n" +
			"kubectl completes the arguments of a plugin by a program of its own, kubectl_complete-fencedlease. The others are for a shell in\n" +
			"which the plugin is called by its own name, kubectl-fencedlease.",
		Example: "  # For kubectl fencedlease, in every shell for which kubectl's own completion is set up\n" +
			"  kubectl fencedlease completion kubectl > ~/.local/bin/kubectl_complete-fencedlease\n" +
			"  chmod +x ~/.local/bin/kubectl_complete-fencedlease\n\n" +
			"  # For kubectl-fencedlease in bash\n" +
			"  source <(kubectl fencedlease completion bash)",
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			shell, err := cli.OneName(args, "shell")
			if err != nil {
				return err
			}
			return script(f, cmd.Root(), shell)
		},
	}
}

func script(f *cli.Factory, root *cobra.Command, shell string) error {
	var err error
	switch shell {
	case "bash":
		err = root.GenBashCompletionV2(f.Out, true)
	case "zsh":
		err = root.GenZshCompletion(f.Out)
	case "fish":
		err = root.GenFishCompletion(f.Out, true)
	case "powershell":
		err = root.GenPowerShellCompletionWithDesc(f.Out)
	case "kubectl":
		_, err = fmt.Fprint(f.Out, kubectlScript)
	default:
		return cli.OneOf("shell", shell, shells...)
	}
	if err != nil {
		return fmt.Errorf("print completion: %w", err)
	}
	return nil
}
