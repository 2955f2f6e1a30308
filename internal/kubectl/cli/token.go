// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fencedlease/fencedlease/pkg/token"
)

// Variables of the environment in which `run` hands a term to its command, and from which other commands take it.
const (
	EnvToken      = "FENCEDLEASE_TOKEN"
	EnvLease      = "FENCEDLEASE_NAME"
	EnvNamespace  = "FENCEDLEASE_NAMESPACE"
	EnvGeneration = "FENCEDLEASE_GENERATION"
	EnvTerm       = "FENCEDLEASE_TERM"
	EnvHolder     = "FENCEDLEASE_HOLDER"
)

// Tokens are fencing tokens as they are given on a command line.
type Tokens struct {
	// Named are the tokens of leases by the lease's name.
	Named map[string]token.Token
	// Sole is the token of the only lease that guards the object, or zero.
	Sole token.Token
}

// IsZero reports whether no token was given.
func (t Tokens) IsZero() bool { return len(t.Named) == 0 && t.Sole.IsZero() }

// AddTokenFlag adds --token.
func AddTokenFlag(flags *pflag.FlagSet, values *[]string) {
	flags.StringArrayVar(values, "token", nil, "Fencing token of the lease that guards the object, as acquire and get print it: GENERATION.TERM, "+
		"or LEASE=GENERATION.TERM. Repeat it for an object that several leases guard. Defaults to the token that run gives to its command.")
}

// ParseTokens reads the values of --token, or what run has put into the environment. What it says about a value that is no
// token does not repeat it, as it may be a bearer token.
func ParseTokens(values []string, getenv func(string) string) (Tokens, error) {
	var tokens Tokens
	if len(values) == 0 {
		text, lease := getenv(EnvToken), getenv(EnvLease)
		if text == "" || lease == "" {
			return tokens, nil
		}
		t, err := token.Parse(text)
		if err != nil {
			return tokens, Usagef("the variable %s holds no fencing token: %s: set both %s and %s as run does, or neither",
				EnvToken, withoutText(err, text), EnvToken, EnvLease)
		}
		return Tokens{Named: map[string]token.Token{lease: t}}, nil
	}
	for _, value := range values {
		lease, text, named := strings.Cut(value, "=")
		if !named {
			lease, text = "", value
		}
		t, err := token.Parse(text)
		if err != nil {
			return tokens, Usagef("--token: %s: give GENERATION.TERM as `kubectl fencedlease acquire` prints it, or LEASE=GENERATION.TERM "+
				"(a bearer token belongs into the kubeconfig)", withoutText(err, text))
		}
		switch {
		case named && lease == "":
			return tokens, Usagef("--token: the lease's name before the = is empty: give LEASE=GENERATION.TERM")
		case named:
			if _, twice := tokens.Named[lease]; twice {
				return tokens, Usagef("--token: lease %s has two tokens: give one token for each lease", lease)
			}
			if tokens.Named == nil {
				tokens.Named = map[string]token.Token{}
			}
			tokens.Named[lease] = t
		case !tokens.Sole.IsZero():
			return tokens, Usagef("--token: two tokens without a lease's name: give each as LEASE=GENERATION.TERM")
		default:
			tokens.Sole = t
		}
	}
	if len(tokens.Named) > 0 && !tokens.Sole.IsZero() {
		return tokens, Usagef("--token: one token has no lease's name: give each as LEASE=GENERATION.TERM")
	}
	return tokens, nil
}

// withoutText is what a parser said about a text, without the text.
func withoutText(err error, text string) string {
	return strings.Replace(err.Error(), fmt.Sprintf(" %q", text), "", 1)
}
