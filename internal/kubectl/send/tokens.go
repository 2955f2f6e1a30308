// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/guarded"
	"github.com/fencedlease/fencedlease/internal/kubectl/target"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// TokensFor says which lease each token is of. A token without a lease's name is of the only lease that guards the object,
// for which the leases are read from the API server; nothing is read if all have names.
func TokensFor(ctx context.Context, c client.Client, tokens cli.Tokens, t target.Target, subresource string) (map[types.NamespacedName]token.Token, error) {
	found := map[types.NamespacedName]token.Token{}
	for name, text := range tokens.Named {
		// A token's key has no namespace: leases of one name never guard the same object.
		found[types.NamespacedName{Namespace: t.Object.GetNamespace(), Name: name}] = text
	}
	if tokens.Sole.IsZero() {
		return found, nil
	}
	leases, err := guarded.Leases(ctx, c, guarded.Object{
		Resource: t.Mapping.Resource.GroupResource(), Subresource: subresource, Namespace: t.Object.GetNamespace(),
		Labels: []labels.Set{t.Object.GetLabels()}, NamespaceLabels: guarded.NamespaceLabels(c, t.Object.GetNamespace()),
		AnyLabels: true,
	})
	const name = "say which one the token is of: --token=LEASE=TOKEN"
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("find the FencedLease that guards %s: you may not list them; %s", t, name)
	case err != nil:
		return nil, fmt.Errorf("find the FencedLease that guards %s: %w", t, err)
	case len(leases.Found) == 0:
		return nil, cli.Usagef("no FencedLease that you may see guards %s, so that it is not known whose token this is: %s", t, name)
	case len(leases.Found) > 1:
		var names []string
		for _, l := range leases.Found {
			names = append(names, l.Lease.Name)
		}
		return nil, cli.Usagef("%s is guarded by several FencedLeases (%s): give a token for each, --token=LEASE=TOKEN", t, strings.Join(names, ", "))
	}
	found[cli.Key(leases.Found[0].Lease)] = tokens.Sole
	return found, nil
}

// Failed explains why a write was not carried out. A refusal by the fence has the exit code for refusals.
func Failed(verb string, t fmt.Stringer, err error) error {
	var impersonation *fenced.ImpersonationError
	var usage *cli.UsageError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &usage):
		return err
	case errors.As(err, &impersonation):
		return fmt.Errorf("%s %s: %w. Or let the object carry the token: --carrier=annotation", verb, t, err)
	}
	if refusal, ok := fenced.Cause(err); ok {
		return cli.Refused(fmt.Errorf("%s %s: refused by the fence (%s): %s", verb, t, refusal.Type, refusal.Message))
	}
	return fmt.Errorf("%s %s: %w", verb, t, err)
}
