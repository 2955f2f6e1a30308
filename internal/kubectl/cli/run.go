// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"
)

// Command is what a command does with its options, as kubectl's own commands do.
type Command interface {
	// Complete reads the arguments.
	Complete(args []string) error
	// Validate refuses what cannot work, before any request is sent.
	Validate() error
	// Run does what was asked for.
	Run(ctx context.Context) error
}

// RunE runs a command for cobra.
func RunE(c Command) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := c.Complete(args); err != nil {
			return err
		}
		if err := c.Validate(); err != nil {
			return err
		}
		return c.Run(cmd.Context())
	}
}
