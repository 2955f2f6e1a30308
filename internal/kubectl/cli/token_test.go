// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/pkg/token"
)

func TestTokensAreRead(t *testing.T) {
	tok := token.Token{Generation: 48215, Term: "k3v9x2ab"}
	inRun := map[string]string{cli.EnvToken: "48215.k3v9x2ab", cli.EnvLease: "report-writer"}
	for name, c := range map[string]struct {
		values []string
		env    map[string]string
		want   cli.Tokens
		err    string
	}{
		"none":                          {},
		"one":                           {values: []string{"48215.k3v9x2ab"}, want: cli.Tokens{Sole: tok}},
		"one with a name":               {values: []string{"a=48215.k3v9x2ab"}, want: cli.Tokens{Named: map[string]token.Token{"a": tok}}},
		"several with names":            {values: []string{"a=48215.k3v9x2ab", "b=1"}, want: cli.Tokens{Named: map[string]token.Token{"a": tok, "b": {Generation: 1}}}},
		"that of run":                   {env: inRun, want: cli.Tokens{Named: map[string]token.Token{"report-writer": tok}}},
		"the flag before that of run":   {values: []string{"7"}, env: inRun, want: cli.Tokens{Sole: token.Token{Generation: 7}}},
		"a variable without the other":  {env: map[string]string{cli.EnvToken: "48215.k3v9x2ab"}},
		"garbage in the variable":       {env: map[string]string{cli.EnvToken: "x", cli.EnvLease: "a"}, err: "FENCEDLEASE_TOKEN holds no fencing token"},
		"a bearer token":                {values: []string{"eyJhbGciOi.secret.secret"}, err: "a bearer token belongs into the kubeconfig"},
		"an empty name":                 {values: []string{"=48215"}, err: "name before the = is empty"},
		"two for one lease":             {values: []string{"a=1", "a=2"}, err: "lease a has two tokens"},
		"two without names":             {values: []string{"1", "2"}, err: "two tokens without a lease's name"},
		"one with and one without name": {values: []string{"a=1", "2"}, err: "one token has no lease's name"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cli.ParseTokens(c.values, func(name string) string { return c.env[name] })
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error: want %q, got %v", c.err, err)
				}
				if strings.Contains(err.Error(), "secret") {
					t.Errorf("the error repeats what may be a bearer token: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("tokens (-want +got):\n%s", diff)
			}
		})
	}
}
