// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manager wires the product together and runs it: the webhook on every replica, the controllers on the elected
// one. cmd/manager and the tests start it.
package manager

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/fencedlease/fencedlease/internal/cert"
	"github.com/fencedlease/fencedlease/internal/controller"
	"github.com/fencedlease/fencedlease/internal/controller/seal"
	"github.com/fencedlease/fencedlease/internal/fence"
)

// Options are what the manager is started with. NewOptions returns them with their defaults.
type Options struct {
	// MetricsAddr is where metrics are served, "0" for nowhere.
	MetricsAddr string
	// MetricsSecure serves metrics by HTTPS, to those who may get /metrics.
	MetricsSecure bool
	// ProbeAddr is where /healthz and /readyz are served, "0" for nowhere.
	ProbeAddr string
	// PprofAddr is where profiles are served, empty for nowhere.
	PprofAddr string
	// WebhookHost and WebhookPort are where the webhook is served.
	WebhookHost string
	WebhookPort int
	// WebhookURL is the address by which API servers call, for clusters where they cannot reach Services. Empty means the
	// Service.
	WebhookURL string
	// WebhookService is the name of the Service in front of the webhook.
	WebhookService string
	// WebhookCertPath is a folder with the serving certificate, its key and its CA. Empty means certificates of the manager's own.
	WebhookCertPath string
	// EnableHTTP2 allows HTTP/2 for metrics and webhook.
	EnableHTTP2 bool
	// LeaderElect runs the controllers on one of several replicas only.
	LeaderElect bool
	// Namespace is the manager's own.
	Namespace string
	// SystemCollectors and SystemMigrators replace the users known as system writers.
	SystemCollectors, SystemMigrators list
	// SealParallel is how many guarded objects are stamped at once, for all leases together.
	SealParallel int
	// DrainDelay is how long an ending replica goes on answering, so that API servers and endpoints take notice.
	DrainDelay time.Duration
	// CertSettle is how long a new CA must have been installed before it signs.
	CertSettle time.Duration
	// CALife and LeafLife are how long a CA and a serving certificate are valid.
	CALife, LeafLife time.Duration
	// CertCheck and CertReread are how often the state of the CA is looked at and read anew; 0 for the defaults. They are no
	// flags: nobody but a test with certificates of seconds needs others.
	CertCheck, CertReread time.Duration
	// Version prints the version and ends.
	Version bool
	// Zap are the options of the log.
	Zap zap.Options
}

// list is a flag that takes values separated by commas.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(text string) error {
	*l = nil
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			*l = append(*l, part)
		}
	}
	return nil
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	system := fence.DefaultSystemWriters()
	return &Options{
		MetricsAddr:      "0",
		MetricsSecure:    true,
		ProbeAddr:        ":8081",
		WebhookPort:      9443,
		WebhookService:   "fencedlease-webhook-service",
		Namespace:        os.Getenv("POD_NAMESPACE"),
		SystemCollectors: system.Collectors,
		SystemMigrators:  system.Migrators,
		SealParallel:     seal.DefaultParallel,
		DrainDelay:       15 * time.Second,
		CertSettle:       cert.DefaultSettleMargin,
		CALife:           cert.DefaultCALife,
		LeafLife:         cert.DefaultLeafLife,
		Zap:              zap.Options{TimeEncoder: zapcore.RFC3339NanoTimeEncoder},
	}
}

// AddFlags binds the options to flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.MetricsAddr, "metrics-bind-address", o.MetricsAddr,
		"Address of the metrics endpoint, for example :8443. 0 turns it off.")
	flags.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure,
		"Serve metrics by HTTPS, to clients that may get the non-resource URL /metrics.")
	flags.StringVar(&o.ProbeAddr, "health-probe-bind-address", o.ProbeAddr, "Address of /healthz and /readyz. 0 turns them off.")
	flags.StringVar(&o.PprofAddr, "pprof-bind-address", o.PprofAddr, "Address of the profiles. Empty turns them off.")
	flags.StringVar(&o.WebhookHost, "webhook-host", o.WebhookHost, "Address that the webhook listens on. Empty means all.")
	flags.IntVar(&o.WebhookPort, "webhook-port", o.WebhookPort, "Port that the webhook listens on.")
	flags.StringVar(&o.WebhookURL, "webhook-url", o.WebhookURL,
		"Address by which API servers call the webhook, https://<host>[:<port>], where they cannot reach Services. Empty means by the Service.")
	flags.StringVar(&o.WebhookService, "webhook-service", o.WebhookService, "Name of the Service in front of the webhook.")
	flags.StringVar(&o.WebhookCertPath, "webhook-cert-path", o.WebhookCertPath,
		"Folder with tls.crt, tls.key and ca.crt, such as a mounted Secret of cert-manager, to serve by. Empty means certificates of the manager's own.")
	flags.BoolVar(&o.EnableHTTP2, "enable-http2", o.EnableHTTP2, "Allow HTTP/2 for the metrics and webhook servers.")
	flags.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect,
		"Run the controllers on one elected replica. The webhook is served by all in any case.")
	flags.StringVar(&o.Namespace, "namespace", o.Namespace, "Namespace of the manager. Defaults to the environment variable POD_NAMESPACE.")
	flags.Var(&o.SystemCollectors, "system-collectors",
		"Users, separated by commas, that may delete guarded objects and change their owner references and finalizers without a token: "+
			"the garbage collector and the namespace controller.")
	flags.Var(&o.SystemMigrators, "system-migrators",
		"Users, separated by commas, that may write unchanged guarded objects without a token: the storage version migrator.")
	flags.IntVar(&o.SealParallel, "seal-parallel", o.SealParallel,
		"How many guarded objects seals stamp at once, for all leases together. From 1 to 256.")
	flags.DurationVar(&o.DrainDelay, "drain-delay", o.DrainDelay,
		"How long an ending replica goes on answering reviews after it has turned unready.")
	flags.DurationVar(&o.CertSettle, "cert-settle", o.CertSettle,
		"How long webhook configurations must have carried a new CA before certificates are signed by it.")
	flags.DurationVar(&o.CALife, "cert-ca-life", o.CALife, "How long a CA is valid. It is rotated at two thirds.")
	flags.DurationVar(&o.LeafLife, "cert-leaf-life", o.LeafLife, "How long a serving certificate is valid. It is renewed at two thirds.")
	flags.BoolVar(&o.Version, "version", o.Version, "Print the version and end.")
	o.Zap.BindFlags(flags)
}

// Parse reads the flags of a command line. It prints what is wrong, and the usage, to errOut.
func Parse(args []string, errOut io.Writer) (*Options, error) {
	o := NewOptions()
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	flags.SetOutput(errOut)
	o.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		// It has been printed.
		return nil, err
	}
	if flags.NArg() > 0 {
		err := fmt.Errorf("unexpected argument %q: the manager takes flags only", flags.Arg(0))
		_, _ = fmt.Fprintln(errOut, err)
		flags.Usage()
		return nil, err
	}
	return o, nil
}

// Validate reports everything that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if o.Namespace == "" {
		errs = append(errs, errors.New("the manager's namespace is not known: set --namespace or the environment variable POD_NAMESPACE"))
	} else if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--namespace %q: %s", o.Namespace, strings.Join(problems, ", ")))
	}
	if o.WebhookPort < 1 || o.WebhookPort > 65535 {
		errs = append(errs, fmt.Errorf("--webhook-port %d: must be 1 to 65535", o.WebhookPort))
	}
	if o.WebhookURL != "" {
		if err := checkURL(o.WebhookURL); err != nil {
			errs = append(errs, fmt.Errorf("--webhook-url %q: %w", o.WebhookURL, err))
		}
	}
	// Certificates name the Service also where API servers call by URL.
	if problems := validation.IsDNS1035Label(o.WebhookService); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--webhook-service %q: %s", o.WebhookService, strings.Join(problems, ", ")))
	}
	for name, d := range map[string]time.Duration{"cert-settle": o.CertSettle, "cert-ca-life": o.CALife, "cert-leaf-life": o.LeafLife} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("--%s %v: must be positive", name, d))
		}
	}
	if o.SealParallel < 1 || o.SealParallel > 256 {
		errs = append(errs, fmt.Errorf("--seal-parallel %d: must be 1 to 256", o.SealParallel))
	}
	if o.DrainDelay < 0 {
		errs = append(errs, fmt.Errorf("--drain-delay %v: must not be negative", o.DrainDelay))
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https":
		return errors.New("must begin with https://")
	case u.Hostname() == "":
		return errors.New("must name a host")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return errors.New("must be https://<host>[:<port>] and nothing more")
	}
	if port := u.Port(); port != "" {
		if number, err := strconv.Atoi(port); err != nil || number < 1 || number > 65535 {
			return fmt.Errorf("port %s: must be 1 to 65535", port)
		}
	}
	return nil
}

// names returns what serving certificates are for.
func (o *Options) names() (dns []string, ips []net.IP) {
	dns = []string{
		o.WebhookService + "." + o.Namespace + ".svc",
		o.WebhookService + "." + o.Namespace + ".svc.cluster.local",
	}
	if o.WebhookURL == "" {
		return dns, nil
	}
	// Validate has parsed it already.
	u, err := url.Parse(o.WebhookURL)
	if err != nil {
		return dns, nil
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil {
		return dns, []net.IP{ip}
	}
	return append(dns, u.Hostname()), nil
}

// host returns what API servers call the webhook by.
func (o *Options) host() string {
	dns, ips := o.names()
	switch {
	case o.WebhookURL == "":
		return dns[0]
	case len(ips) > 0:
		return ips[0].String()
	default:
		return dns[len(dns)-1]
	}
}

// endpoint returns where API servers call.
func (o *Options) endpoint() controller.Endpoint {
	return controller.Endpoint{URL: o.WebhookURL, ServiceNamespace: o.Namespace, ServiceName: o.WebhookService}
}

// clockSkew returns the skew of clocks that certificates allow for: the default, but less for certificates so short-lived
// that it would take all of their life.
func (o *Options) clockSkew() time.Duration {
	return min(cert.DefaultClockSkew, o.LeafLife/10)
}

func (o *Options) systemWriters() fence.SystemWriters {
	return fence.SystemWriters{Collectors: o.SystemCollectors, Migrators: o.SystemMigrators}
}
