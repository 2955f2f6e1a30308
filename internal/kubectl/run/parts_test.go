// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fencedlease/fencedlease/internal/kubectl/cli"
	"github.com/fencedlease/fencedlease/internal/kubectl/clitest"
	"github.com/fencedlease/fencedlease/internal/possession"
	"github.com/fencedlease/fencedlease/pkg/leader"
)

func TestKillComesBeforeOthersMayLead(t *testing.T) {
	const second = time.Second
	for name, c := range map[string]struct {
		gaps     []time.Duration
		after    time.Duration // the loss, after the acquisition
		duration time.Duration
		expired  bool
		want     time.Duration // after the acquisition
	}{
		"expired after the acquisition":           {nil, 10 * second, 15 * second, true, 13 * second},
		"expired after renewals":                  {[]time.Duration{2 * second, 3 * second}, 15 * second, 15 * second, true, 18 * second},
		"taken right after a renewal":             {[]time.Duration{2 * second}, 2 * second, 15 * second, false, 15 * second},
		"paused for longer than the duration":     {nil, 60 * second, 15 * second, true, 13 * second},
		"a duration that was shortened meanwhile": {[]time.Duration{2 * second}, 4 * second, 15 * second, true, 5*second - second/2},
		"the shortest duration":                   {nil, 667 * time.Millisecond, second, true, second - second/6},
	} {
		t.Run(name, func(t *testing.T) {
			r := &renewals{}
			r.Renewed(time.Hour) // of an earlier term
			r.Acquired(0)
			r.begin(clitest.Now)
			for _, gap := range c.gaps {
				r.Renewed(gap)
			}
			got := r.killAt(clitest.Now.Add(c.after), c.duration, c.expired).Sub(clitest.Now)
			if got != c.want {
				t.Errorf("killed after the acquisition: want %s, got %s", c.want, got)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	lost := possession.NewExpiredError(leader.Info{Namespace: "reports", Name: "report-writer", Generation: 7, ID: "aaaaaaaa", Holder: "a"}, nil)
	for name, c := range map[string]struct {
		err  error
		code int
		says string
	}{
		"the command ended well":                  {&exitError{code: 0}, 0, ""},
		"the command failed":                      {&exitError{code: 3}, 3, ""},
		"the command was ended by a signal":       {&exitError{code: 143}, 143, ""},
		"the command was not found":               {&exitError{code: 127, err: errors.New("cannot run x")}, 127, "cannot run x"},
		"lost, and the command ended well":        {errors.Join(lost, &exitError{code: 0}), 1, lost.Error()},
		"lost, and the command ended by the TERM": {errors.Join(lost, &exitError{code: 143}), 143, lost.Error()},
		"interrupted before it began":             {&cli.InterruptedError{}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := conclude(c.err)
			if got := cli.ExitCode(err); got != c.code {
				t.Errorf("exit code: want %d, got %d", c.code, got)
			}
			var coded *cli.CodeError
			if errors.As(err, &coded) {
				if said := coded.Err; (said == nil) != (c.says == "") || said != nil && said.Error() != c.says {
					t.Errorf("message: want %q, got %v", c.says, said)
				}
			}
		})
	}
}

func TestKubeconfigSaysTheSame(t *testing.T) {
	config := &rest.Config{
		Host: "https://api.example.com:6443", BearerToken: "old", BearerTokenFile: "/var/run/token",
		TLSClientConfig: rest.TLSClientConfig{CAFile: "/ca.crt", CertData: []byte("cert"), KeyFile: "/key", ServerName: "kubernetes"},
	}
	out := kubeconfigOf(config, "reports")
	impersonate(out.AuthInfos[nameInKubeconfig], carrying(rest.ImpersonationConfig{
		UserName: "ann", Groups: []string{"writers"}, Extra: map[string][]string{"token.fencedlease.io/outer": {"9"}},
	}, "report-writer", "48215.k3v9x2ab"))
	text, err := clientcmd.Write(*out)
	if err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, "kubeconfig", string(text))
}

func TestProxyIsThatOfTheChosenCluster(t *testing.T) {
	raw := clientcmdapi.Config{
		CurrentContext: "a",
		Contexts:       map[string]*clientcmdapi.Context{"a": {Cluster: "one"}, "b": {Cluster: "two"}},
		Clusters:       map[string]*clientcmdapi.Cluster{"one": {ProxyURL: "http://one"}, "two": {ProxyURL: "http://two"}},
	}
	for _, c := range []struct{ context, cluster, flag, want string }{
		{"", "", "", "http://one"},
		{"b", "", "", "http://two"},
		{"a", "two", "", "http://two"},
		{"a", "", "http://flag", "http://flag"},
		{"none", "", "", ""},
	} {
		if got := proxyOf(raw, c.context, c.cluster, c.flag); got != c.want {
			t.Errorf("proxy of context %q, cluster %q, flag %q: want %q, got %q", c.context, c.cluster, c.flag, c.want, got)
		}
	}
}

func TestVariablesOfTheTermReplaceThoseOfAnother(t *testing.T) {
	got := withVariables([]string{"PATH=/bin", "FENCEDLEASE_TOKEN=1.aaaaaaaa", "KUBECONFIG=/old", "ODD"},
		termVariables(leader.Info{Namespace: "reports", Name: "report-writer", Generation: 7, ID: "bbbbbbbb", Holder: "me"}))
	want := []string{
		"PATH=/bin", "KUBECONFIG=/old", "ODD",
		"FENCEDLEASE_GENERATION=7", "FENCEDLEASE_HOLDER=me", "FENCEDLEASE_NAME=report-writer",
		"FENCEDLEASE_NAMESPACE=reports", "FENCEDLEASE_TERM=bbbbbbbb", "FENCEDLEASE_TOKEN=7.bbbbbbbb",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}
