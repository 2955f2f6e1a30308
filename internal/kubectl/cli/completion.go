// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// CompleteLeases completes arguments by the names of FencedLeases that are not given yet: at most limit of them, or any
// number if it is below 0. Without an answer of the API server there is nothing to complete.
func CompleteLeases(f *Factory, limit int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if limit >= 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return leaseNames(f, cmd, args), cobra.ShellCompDirectiveNoFileComp
	}
}

func leaseNames(f *Factory, cmd *cobra.Command, given []string) []cobra.Completion {
	namespace, err := f.Namespace()
	if err != nil {
		return nil
	}
	c, err := f.Client()
	if err != nil {
		return nil
	}
	list, err := ListLeases(cmd.Context(), c, namespace)
	if err != nil {
		return nil
	}
	taken := map[string]bool{}
	for _, name := range given {
		taken[name] = true
	}
	var names []cobra.Completion
	for i := range list.Items {
		if lease := &list.Items[i]; !taken[lease.Name] {
			names = append(names, cobra.CompletionWithDesc(lease.Name, "holder: "+Holder(lease)))
		}
	}
	return names
}

// Key returns the namespaced name of a lease.
func Key(lease *v1alpha1.FencedLease) types.NamespacedName {
	return types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}
}

// CompleteNamespaces completes --namespace.
func CompleteNamespaces(f *Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := f.Client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list := &corev1.NamespaceList{}
		if err := c.List(cmd.Context(), list); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
