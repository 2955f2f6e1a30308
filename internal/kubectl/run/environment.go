// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/pkg/leader"
)

// termVariables tell the command its term.
func termVariables(info leader.Info) map[string]string {
	return map[string]string{
		cli.EnvToken:      info.Token().String(),
		cli.EnvLease:      info.Name,
		cli.EnvNamespace:  info.Namespace,
		cli.EnvGeneration: strconv.FormatInt(info.Generation, 10),
		cli.EnvTerm:       info.ID,
		cli.EnvHolder:     info.Holder,
	}
}

// withVariables returns an environment with some variables set, whatever they were before.
func withVariables(environment []string, variables map[string]string) []string {
	kept := slices.DeleteFunc(slices.Clone(environment), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		_, set := variables[name]
		return set
	})
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		kept = append(kept, name+"="+variables[name])
	}
	return kept
}
