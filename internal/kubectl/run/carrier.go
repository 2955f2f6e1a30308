// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/pkg/leader/fenced"
)

// carrier is how the kubeconfig of a term carries its token.
type carrier string

const (
	// carrierAuto is the first of the others that the caller has the right to.
	carrierAuto carrier = "auto"
	// carrierCredential: a token of a service account that was requested for the term, by a file that is kept fresh.
	carrierCredential carrier = "credential"
	// carrierRequest: every request impersonates the caller's own user, with the token as an extra.
	carrierRequest carrier = "request"
	// carrierNone: the kubeconfig stays as it is, and the command presents FENCEDLEASE_TOKEN itself.
	carrierNone carrier = "none"
)

// carriers are what --carrier takes.
func carriers() []string {
	return []string{string(carrierAuto), string(carrierCredential), string(carrierRequest), string(carrierNone)}
}

// probeToken is sent to find out whether a token may be carried. It is dry: the request writes nothing.
const probeToken = "1"

// chooseCarrier returns the carrier of the term's kubeconfig. It is chosen before the lease is acquired, so that a missing right
// holds nothing up. A right that is bound to certain tokens is found missing here and is of no use, as tokens change.
func (o *Options) chooseCarrier(ctx context.Context) (carrier, error) {
	wanted := carrier(o.Carrier)
	if wanted == carrierNone {
		return carrierNone, nil
	}
	identity, err := o.ownIdentity(ctx)
	if err != nil {
		return "", err
	}
	if wanted != carrierRequest {
		if usable, err := o.mayUseCredential(ctx, identity.UserName); usable || err != nil {
			return carrierCredential, err
		}
	}
	probe := rest.CopyConfig(o.config)
	probe.Impersonate = carrying(identity, o.Name, probeToken)
	c, err := cli.NewClient(probe)
	if err != nil {
		return "", err
	}
	_, err = cli.WhoAmI(ctx, c)
	switch {
	case err == nil:
		return carrierRequest, nil
	case !apierrors.IsForbidden(err):
		return "", err
	case wanted == carrierRequest:
		return "", fmt.Errorf("carry the token of FencedLease %s with requests: %w: the roles that are needed are printed by: kubectl fencedlease rbac %s; "+
			"or use --carrier=none and let the command present %s itself", o.Name, errors.Unwrap(err), o.Name, cli.EnvToken)
	default:
		o.Say("Warning: you may not carry tokens with requests, so KUBECONFIG carries none and the command must present %s itself. "+
			"The roles that are needed are printed by: kubectl fencedlease rbac %s", cli.EnvToken, o.Name)
		return carrierNone, nil
	}
}

// mayUseCredential finds the service account whose tokens are requested, and reports whether the caller may request them. It
// is an error where that was asked for.
func (o *Options) mayUseCredential(ctx context.Context, user string) (bool, error) {
	asked := carrier(o.Carrier) == carrierCredential
	account, isAccount := accountOf(o.ServiceAccount, o.lease.Namespace, user)
	if !isAccount {
		if asked {
			return false, cli.Usagef("--carrier=credential needs a service account, and you are %s: say which one with --serviceaccount", user)
		}
		return false, nil
	}
	o.account = account
	c, err := o.Client()
	if err != nil {
		return false, err
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: account.Namespace, Name: account.Name,
		},
	}}
	if err := c.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask whether you may request tokens of service account %s: %w", account, err)
	}
	if asked && !review.Status.Allowed {
		return false, fmt.Errorf("request tokens of service account %s: you may not: the roles that are needed are printed by: "+
			"kubectl fencedlease rbac %s --carrier=credential --serviceaccount=%s:%s", account, o.Name, account.Namespace, account.Name)
	}
	return review.Status.Allowed, nil
}

// accountOf returns the service account that was named, in the lease's namespace unless it says another, or else the user.
func accountOf(named, namespace, user string) (account types.NamespacedName, ok bool) {
	if named != "" {
		if ns, name, qualified := strings.Cut(named, ":"); qualified {
			return types.NamespacedName{Namespace: ns, Name: name}, true
		}
		return types.NamespacedName{Namespace: namespace, Name: named}, true
	}
	rest, ok := strings.CutPrefix(user, serviceAccountPrefix)
	if !ok {
		return types.NamespacedName{}, false
	}
	namespace, name, ok := strings.Cut(rest, ":")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}

const serviceAccountPrefix = "system:serviceaccount:"

// ownIdentity returns whom requests are to impersonate: the user whom the configuration impersonates already, or the caller as
// the API server knows him.
func (o *Options) ownIdentity(ctx context.Context) (rest.ImpersonationConfig, error) {
	if o.config.Impersonate.UserName != "" {
		return o.config.Impersonate, nil
	}
	c, err := o.Client()
	if err != nil {
		return rest.ImpersonationConfig{}, err
	}
	user, err := cli.WhoAmI(ctx, c)
	if err != nil {
		return rest.ImpersonationConfig{}, err
	}
	return fenced.ItselfOf(user), nil
}

// carrying adds the token of a lease to an identity.
func carrying(identity rest.ImpersonationConfig, lease, token string) rest.ImpersonationConfig {
	identity.Extra = maps.Clone(identity.Extra)
	if identity.Extra == nil {
		identity.Extra = map[string][]string{}
	}
	identity.Extra[v1alpha1.TokenKey(lease)] = []string{token}
	return identity
}
