// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !integration

package manager

import (
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output is what a program prints. The loggers of the process go on writing to it for as long as the test binary runs.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestMainExitCodes is not among the tests that run with an API server: the program sets the loggers of its process, which
// must not happen while other tests' clients use them.
func TestMainExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		args        []string
		code        int
		out, errOut string
	}{
		"the version goes to standard output": {args: []string{"--version"}, out: "fencedlease-manager "},
		"an unknown flag is a wrong call":     {args: []string{"--fast"}, code: 2, errOut: "flag provided but not defined: -fast\n"},
		"a malformed value is a wrong call": {
			args: []string{"--webhook-port=x"}, code: 2, errOut: "invalid value \"x\" for flag -webhook-port: parse error\n",
		},
		"an argument is a wrong call": {
			args: []string{"serve"}, code: 2, errOut: "unexpected argument \"serve\": the manager takes flags only\n",
		},
		"what cannot run is an error of the run": {
			args: []string{"--namespace=a.b", "--zap-encoder=console"}, code: 1, errOut: "The manager has ended",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut output
			if code := Main(t.Context(), c.args, &out, &errOut); code != c.code {
				t.Errorf("want exit code %d, got %d", c.code, code)
			}
			if text := out.String(); !strings.Contains(text, c.out) || c.out == "" && text != "" {
				t.Errorf("standard output: want %q, got %q", c.out, text)
			}
			if text := errOut.String(); c.errOut != "" && strings.Count(text, c.errOut) != 1 || c.errOut == "" && text != "" {
				t.Errorf("standard error: want %q once, got %q", c.errOut, text)
			}
		})
	}
}
