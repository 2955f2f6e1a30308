// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fencedlease/fencedlease/internal/cert"
	"github.com/fencedlease/fencedlease/internal/controller"
	"github.com/fencedlease/fencedlease/internal/fence"
)

var update = flag.Bool("update", false, "write the golden files in testdata anew")

// golden compares a text with a file in testdata, or writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; if that is meant, run go test with -update (-want +got):\n%s", path, diff)
	}
}

func TestHelp(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	var out, errOut bytes.Buffer
	if code := Main(t.Context(), []string{"--help"}, &out, &errOut); code != 0 {
		t.Errorf("--help: want exit code 0, got %d", code)
	}
	golden(t, "help.golden", out.String()+errOut.String())
}

func TestRunNeedsACluster(t *testing.T) {
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	options := valid()
	err := Run(t.Context(), options, Dependencies{})
	if err == nil || !strings.HasPrefix(err.Error(), "find the cluster: ") {
		t.Errorf("want an error that says that the cluster was not found, got %v", err)
	}
}

// TestDefaultDependencies also says that the product's metrics are among those that the metrics endpoint serves, and that
// the caller's configuration stays as it is.
func TestDefaultDependencies(t *testing.T) {
	given := &rest.Config{Host: "https://127.0.0.1:1", QPS: 3}
	deps := Dependencies{Config: given}
	if err := deps.setDefaults(valid()); err != nil {
		t.Fatal(err)
	}
	if deps.Registry != prometheus.Registerer(metrics.Registry) {
		t.Error("want the registry that the metrics endpoint serves")
	}
	if deps.Clock == nil || deps.Log.GetSink() == nil {
		t.Errorf("want a clock and a log, got %+v", deps)
	}
	if given.QPS != 3 || given.UserAgent != "" {
		t.Errorf("the caller's configuration was changed: %+v", given)
	}
	if unlimited(deps.Config).QPS != -1 || deps.Config.QPS != controllerQPS {
		t.Errorf("want a limit of %d for the controllers alone, got %v", controllerQPS, deps.Config.QPS)
	}
}

func valid(changes ...func(*Options)) *Options {
	o := NewOptions()
	o.Namespace = "fencedlease-system"
	for _, change := range changes {
		change(o)
	}
	return o
}

func TestValidate(t *testing.T) {
	url := func(text string) func(*Options) { return func(o *Options) { o.WebhookURL = text } }
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"the defaults and a namespace are enough": {change: func(*Options) {}},
		"no namespace": {
			change: func(o *Options) { o.Namespace = "" },
			want:   "the manager's namespace is not known: set --namespace or the environment variable POD_NAMESPACE",
		},
		"a namespace that cannot be one": {
			change: func(o *Options) { o.Namespace = "A" },
			want: "--namespace \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must " +
				"start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is " +
				"'[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
		},
		"no port":                    {change: func(o *Options) { o.WebhookPort = 0 }, want: "--webhook-port 0: must be 1 to 65535"},
		"a port that there is not":   {change: func(o *Options) { o.WebhookPort = 65536 }, want: "--webhook-port 65536: must be 1 to 65535"},
		"a URL with a port":          {change: url("https://10.0.0.1:9443")},
		"a URL with a closing slash": {change: url("https://fence.example.com/")},
		"a URL of IPv6":              {change: url("https://[fd00::1]:9443")},
		"a URL that is none": {
			change: url("https://a b"), want: "--webhook-url \"https://a b\": parse \"https://a b\": invalid character \" \" in host name",
		},
		"a URL without TLS": {change: url("http://a"), want: "--webhook-url \"http://a\": must begin with https://"},
		"a URL of no host":  {change: url("https://:9443"), want: "--webhook-url \"https://:9443\": must name a host"},
		"a URL with a port that there is not": {
			change: url("https://a:70000"), want: "--webhook-url \"https://a:70000\": port 70000: must be 1 to 65535",
		},
		"a URL with a path": {
			change: url("https://a/b"), want: "--webhook-url \"https://a/b\": must be https://<host>[:<port>] and nothing more",
		},
		"a URL with slashes": {
			change: url("https://a//"), want: "--webhook-url \"https://a//\": must be https://<host>[:<port>] and nothing more",
		},
		"a URL with a query": {
			change: url("https://a?b"), want: "--webhook-url \"https://a?b\": must be https://<host>[:<port>] and nothing more",
		},
		"a URL with a fragment": {
			change: url("https://a#b"), want: "--webhook-url \"https://a#b\": must be https://<host>[:<port>] and nothing more",
		},
		"a URL with a user": {
			change: url("https://b@a"), want: "--webhook-url \"https://b@a\": must be https://<host>[:<port>] and nothing more",
		},
		"no Service, also where its name is only in certificates": {
			change: func(o *Options) { o.WebhookURL, o.WebhookService = "https://a", "1" },
			want: "--webhook-service \"1\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an " +
				"alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for " +
				"validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
		},
		"no time to settle":   {change: func(o *Options) { o.CertSettle = 0 }, want: "--cert-settle 0s: must be positive"},
		"a CA of no life":     {change: func(o *Options) { o.CALife = 0 }, want: "--cert-ca-life 0s: must be positive"},
		"a leaf of no life":   {change: func(o *Options) { o.LeafLife = -1 }, want: "--cert-leaf-life -1ns: must be positive"},
		"one stamp at a time": {change: func(o *Options) { o.SealParallel = 1 }},
		"no stamps at all":    {change: func(o *Options) { o.SealParallel = 0 }, want: "--seal-parallel 0: must be 1 to 256"},
		"too many stamps":     {change: func(o *Options) { o.SealParallel = 257 }, want: "--seal-parallel 257: must be 1 to 256"},
		"no drain":            {change: func(o *Options) { o.DrainDelay = 0 }},
		"a drain of the past": {change: func(o *Options) { o.DrainDelay = -time.Second }, want: "--drain-delay -1s: must not be negative"},
		"everything that is wrong, in one order": {
			change: func(o *Options) {
				o.WebhookPort, o.DrainDelay, o.CertSettle, o.CALife, o.LeafLife = -1, -1, 0, 0, 0
			},
			want: "--cert-ca-life 0s: must be positive\n--cert-leaf-life 0s: must be positive\n--cert-settle 0s: must be positive\n" +
				"--drain-delay -1ns: must not be negative\n--webhook-port -1: must be 1 to 65535",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := valid(c.change).Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParse(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "from-environment")
	var errOut bytes.Buffer
	o, err := Parse([]string{"--system-collectors=a, b,,c", "--system-migrators=", "--drain-delay=3s", "--webhook-url=https://a"}, &errOut)
	if err != nil || errOut.Len() > 0 {
		t.Fatalf("parse: %v, %q", err, errOut.String())
	}
	if o.Namespace != "from-environment" || o.DrainDelay != 3*time.Second {
		t.Errorf("got %+v", o)
	}
	if diff := cmp.Diff(fence.SystemWriters{Collectors: []string{"a", "b", "c"}}, o.systemWriters()); diff != "" {
		t.Errorf("system writers (-want +got):\n%s", diff)
	}
	if text := o.SystemCollectors.String(); text != "a,b,c" {
		t.Errorf("want the list as text, got %q", text)
	}
	if diff := cmp.Diff(fence.DefaultSystemWriters(), NewOptions().systemWriters()); diff != "" {
		t.Errorf("default system writers (-want +got):\n%s", diff)
	}
}

func TestNamesAndEndpoint(t *testing.T) {
	service := []string{"fencedlease-webhook-service.fencedlease-system.svc", "fencedlease-webhook-service.fencedlease-system.svc.cluster.local"}
	for name, c := range map[string]struct {
		url string
		dns []string
		ips []string
	}{
		"by the Service":           {dns: service},
		"by a URL of a name":       {url: "https://fence.example.com:9443", dns: append(service[:2:2], "fence.example.com")},
		"by a URL of an address":   {url: "https://127.0.0.1:9443", dns: service, ips: []string{"127.0.0.1"}},
		"by a URL of IPv6":         {url: "https://[fd00::1]", dns: service, ips: []string{"fd00::1"}},
		"by what Validate refuses": {url: "https://a b", dns: service},
	} {
		t.Run(name, func(t *testing.T) {
			o := valid(func(o *Options) { o.WebhookURL = c.url })
			dns, addresses := o.names()
			var ips []string
			for _, ip := range addresses {
				ips = append(ips, ip.String())
			}
			if diff := cmp.Diff(c.dns, dns); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.ips, ips); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			want := controller.Endpoint{URL: c.url, ServiceNamespace: "fencedlease-system", ServiceName: "fencedlease-webhook-service"}
			if diff := cmp.Diff(want, o.endpoint()); diff != "" {
				t.Errorf("endpoint (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClockSkew(t *testing.T) {
	for leaf, want := range map[time.Duration]time.Duration{
		cert.DefaultLeafLife:       cert.DefaultClockSkew,
		10 * cert.DefaultClockSkew: cert.DefaultClockSkew,
		time.Minute:                6 * time.Second,
	} {
		if got := valid(func(o *Options) { o.LeafLife = leaf }).clockSkew(); got != want {
			t.Errorf("a leaf of %v: want %v, got %v", leaf, want, got)
		}
	}
}
