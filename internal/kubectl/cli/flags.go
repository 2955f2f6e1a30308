// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DryRun is the value of --dry-run.
type DryRun string

// What --dry-run takes.
const (
	DryRunNone   DryRun = "none"
	DryRunServer DryRun = "server"
)

// AddDryRunFlag adds --dry-run.
func AddDryRunFlag(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, "dry-run", string(DryRunNone), "none, or server: the API server checks the request with all admission and stores nothing.")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = string(DryRunServer)
	Complete(cmd, "dry-run", string(DryRunNone), string(DryRunServer))
}

// ParseDryRun reads --dry-run.
func ParseDryRun(value string) (DryRun, error) {
	if err := OneOf("--dry-run", value, string(DryRunNone), string(DryRunServer)); err != nil {
		return "", err
	}
	return DryRun(value), nil
}

// Options returns what a request's options say.
func (d DryRun) Options() []string {
	if d == DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Suffix follows what is said to have been done.
func (d DryRun) Suffix() string {
	if d == DryRunServer {
		return " (server dry run)"
	}
	return ""
}

// OneOf refuses a value that is none of the choices.
func OneOf(flag, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	named := slices.DeleteFunc(slices.Clone(choices), func(choice string) bool { return choice == "" })
	return Usagef("%s=%s is unknown: give one of %s", flag, value, strings.Join(named, ", "))
}

// Complete lets the shell complete a flag by the choices. A flag that does not exist has nothing to complete.
func Complete(cmd *cobra.Command, flag string, choices ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}

// NoArgs refuses arguments.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Usagef("the argument %q is not expected: leave it out", args[0])
}

// OneName returns the only argument.
func OneName(args []string, what string) (string, error) {
	switch {
	case len(args) == 0:
		return "", Usagef("the name of the %s is missing: give it as the argument", what)
	case len(args) > 1:
		return "", Usagef("%d arguments were given: give the name of one %s", len(args), what)
	case args[0] == "":
		return "", Usagef("the name of the %s is empty: give it as the argument", what)
	default:
		return args[0], nil
	}
}
