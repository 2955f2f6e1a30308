// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package fenced

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
)

// groupAuthenticated is the group of all users with credentials. API servers add it to whoever is impersonated.
const groupAuthenticated = "system:authenticated"

// ownUser finds out which user a configuration's credentials belong to, once for all clients that share it.
type ownUser struct {
	config *rest.Config
	// busy holds the place of the one request that asks or reads known.
	busy  chan struct{}
	known *rest.ImpersonationConfig
}

// newOwnUser returns an ownUser that asks by a copy of config, unless the user is known.
func newOwnUser(config *rest.Config, known *rest.ImpersonationConfig) *ownUser {
	return &ownUser{config: rest.CopyConfig(config), busy: make(chan struct{}, 1), known: known}
}

// get returns the user. It asks the API server if that has not been answered yet, with the context of the request that
// needs to know; others wait for the answer, and ask themselves if there is none.
func (u *ownUser) get(ctx context.Context) (rest.ImpersonationConfig, error) {
	select {
	case u.busy <- struct{}{}:
		defer func() { <-u.busy }()
	case <-ctx.Done():
		return rest.ImpersonationConfig{}, fmt.Errorf("wait for who the caller is: %w", ctx.Err())
	}
	if u.known != nil {
		return *u.known, nil
	}
	user, err := u.ask(ctx)
	if err != nil {
		return rest.ImpersonationConfig{}, fmt.Errorf("ask the API server who the caller is (SelfSubjectReview; option AsUser says it without asking): %w", err)
	}
	u.known = &user
	return user, nil
}

func (u *ownUser) ask(ctx context.Context) (rest.ImpersonationConfig, error) {
	c, err := authenticationclient.NewForConfig(u.config)
	if err != nil {
		return rest.ImpersonationConfig{}, err
	}
	// By the API server, which knows the credentials. Another wrapped configuration below lets the question pass as it is.
	review, err := c.SelfSubjectReviews().Create(askingWho(ctx), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return rest.ImpersonationConfig{}, err
	}
	info := review.Status.UserInfo
	if info.Username == "" {
		return rest.ImpersonationConfig{}, errors.New("the answer names no user")
	}
	return ItselfOf(info), nil
}

// ItselfOf returns whom a user impersonates to stay who it is: its name, and the groups that do not follow from it. A service
// account has its groups by its name; other extra values are not kept.
func ItselfOf(user authenticationv1.UserInfo) rest.ImpersonationConfig {
	itself := rest.ImpersonationConfig{UserName: user.Username}
	if _, _, is := parseServiceAccount(user.Username); !is {
		itself.Groups = namedGroups(user.Groups)
	}
	return itself
}

// namedGroups leaves out the group that everybody has.
func namedGroups(groups []string) []string {
	return slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return g == groupAuthenticated })
}

type askingWhoKey struct{}

// askingWho marks a context as that of the question who the caller is.
func askingWho(ctx context.Context) context.Context {
	return context.WithValue(ctx, askingWhoKey{}, true)
}

func asksWho(ctx context.Context) bool { return ctx.Value(askingWhoKey{}) != nil }
