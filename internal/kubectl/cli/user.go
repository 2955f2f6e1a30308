// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/pkg/token"
)

// WhoAmI asks the API server who it takes the client's requests for, impersonation included.
func WhoAmI(ctx context.Context, c client.Client) (authenticationv1.UserInfo, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("ask who you are: %w", err)
	}
	return review.Status.UserInfo, nil
}

const (
	serviceAccountPrefix = "system:serviceaccount:"
	groupAuthenticated   = "system:authenticated"
)

// Carrying returns a copy of a configuration whose requests carry tokens as extras of the user, who is then impersonated
// by himself: the API server takes extras in no other way. Who is impersonated already stays so.
func Carrying(config *rest.Config, user authenticationv1.UserInfo, tokens map[string]token.Token) *rest.Config {
	carrying := rest.CopyConfig(config)
	extra := maps.Clone(carrying.Impersonate.Extra)
	if extra == nil {
		extra = map[string][]string{}
	}
	for lease, t := range tokens {
		extra[v1alpha1.TokenKey(lease)] = []string{t.String()}
	}
	carrying.Impersonate.Extra = extra
	if carrying.Impersonate.UserName != "" {
		return carrying
	}
	carrying.Impersonate.UserName = user.Username
	// The API server gives a service account its groups by itself, and then needs no right to impersonate groups. Everybody
	// else would lose the rights that come with their groups.
	if !strings.HasPrefix(user.Username, serviceAccountPrefix) {
		carrying.Impersonate.Groups = slices.DeleteFunc(slices.Clone(user.Groups), func(g string) bool { return g == groupAuthenticated })
	}
	return carrying
}
