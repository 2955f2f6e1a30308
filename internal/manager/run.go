// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/version"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create

const (
	program = "fencedlease-manager"
	// electionID is the name of the Lease by which replicas elect the one that runs the controllers.
	electionID = "fencedlease-manager.fencedlease.io"

	// The controllers' own requests are few; the reads for verdicts are not limited here but by the API server's
	// priority levels.
	controllerQPS   = 50
	controllerBurst = 100

	shutdownTimeout = 20 * time.Second
)

// Dependencies are what Run takes from its surroundings. The zero value stands for the real ones.
type Dependencies struct {
	// Config reaches the cluster. Default: as kubectl finds it, or as in a pod.
	Config *rest.Config
	// Registry takes the metrics. Default: the one that the metrics endpoint serves.
	Registry prometheus.Registerer
	// Clock is the time. Default: the real one.
	Clock clock.WithTickerAndDelayedExecution
	// Log takes the log. Default: the logger that the options describe.
	Log logr.Logger
}

// Main runs the manager as a program and returns its exit code.
func Main(ctx context.Context, args []string, out, errOut io.Writer) int {
	options, err := Parse(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case options.Version:
		_, _ = fmt.Fprintln(out, program, version.Long())
		return 0
	}
	log := zap.New(zap.UseFlagOptions(&options.Zap), zap.WriteTo(errOut))
	// The loggers of the libraries are the process's, so the program sets them and Run does not: setting them is not safe
	// while another manager runs in the same process.
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	if err := Run(ctx, options, Dependencies{Log: log}); err != nil {
		log.Error(err, "The manager has ended")
		return 1
	}
	return 0
}

// Run runs the manager until ctx ends and the drain is over. It returns an error if the options are wrong, if something
// cannot be started, or if the election is lost.
func Run(ctx context.Context, options *Options, deps Dependencies) error {
	if err := options.Validate(); err != nil {
		return fmt.Errorf("check options: %w", err)
	}
	if err := deps.setDefaults(options); err != nil {
		return err
	}

	ending := &drain{clock: deps.Clock, delay: options.DrainDelay}
	p := &parts{options: options, deps: deps, ending: ending}
	if err := p.build(); err != nil {
		return err
	}
	deps.Log.Info("Starting the manager", "version", version.Long(), "namespace", options.Namespace)
	ctx, cancel := ending.context(ctx)
	defer cancel()
	return p.run(ctx, cancel)
}

// run runs the view of the leases around everything else. The manager stops its servers last of all that it runs, and as
// long as they answer, which is until the last request has been answered, the answers need the view.
func (p *parts) run(ctx context.Context, cancel context.CancelFunc) error {
	viewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	viewed := make(chan error, 1)
	go func() {
		// Without a view no correct verdict is possible.
		defer cancel()
		viewed <- p.view.Start(viewing)
	}()
	err := p.manager.Start(ctx)
	if ctx.Err() == nil {
		// It has ended by itself, as it does when the election is lost. The controllers are, or are about to be, at rest, but API
		// servers send reviews here until they have seen that this replica is unready.
		p.ending.pass()
		cancel()
	}
	p.ending.answering.Wait()
	stop()
	if err != nil {
		err = fmt.Errorf("run manager: %w", err)
	}
	if failed := <-viewed; failed != nil {
		err = errors.Join(err, fmt.Errorf("run view of leases: %w", failed))
	}
	return err
}

func (d *Dependencies) setDefaults(options *Options) error {
	if d.Clock == nil {
		d.Clock = clock.RealClock{}
	}
	if d.Registry == nil {
		d.Registry = metrics.Registry
	}
	if d.Log.GetSink() == nil {
		d.Log = zap.New(zap.UseFlagOptions(&options.Zap))
	}
	if d.Config == nil {
		loaded, err := ctrl.GetConfig()
		if err != nil {
			return fmt.Errorf("find the cluster: %w", err)
		}
		d.Config = loaded
	}
	d.Config = rest.CopyConfig(d.Config)
	d.Config.UserAgent = version.UserAgent(program)
	d.Config.QPS, d.Config.Burst = controllerQPS, controllerBurst
	return nil
}

// newScheme returns a scheme with all kinds that the manager reads and writes as typed objects.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build scheme: %w", err)
	}
	return scheme, nil
}

// newManager returns a controller-runtime manager whose webhook server takes its certificate from getCertificate.
func (p *parts) newManager(getCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	o := p.options
	var http2 []func(*tls.Config)
	if !o.EnableHTTP2 {
		http2 = append(http2, func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} })
	}
	serving := append([]func(*tls.Config){func(c *tls.Config) {
		c.MinVersion = tls.VersionTLS12
		c.GetCertificate = getCertificate
	}}, http2...)

	metricsOptions := metricsserver.Options{BindAddress: o.MetricsAddr, SecureServing: o.MetricsSecure}
	if o.MetricsSecure {
		metricsOptions.FilterProvider = filterScrapers
		// The same certificate as the webhook's, so that a scraper can verify it by the CA in the Secret.
		metricsOptions.TLSOpts = serving
	}
	timeout := shutdownTimeout
	mgr, err := ctrl.NewManager(p.deps.Config, ctrl.Options{
		Scheme:                        scheme,
		Logger:                        p.deps.Log,
		Metrics:                       metricsOptions,
		HealthProbeBindAddress:        o.ProbeAddr,
		PprofBindAddress:              o.PprofAddr,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              electionID,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &timeout,
		// Tests run several managers in one process; names of controllers are constants.
		Controller: config.Controller{SkipNameValidation: new(true)},
		NewCache:   p.ending.newCache,
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}},
		}},
		WebhookServer: drainingServer{
			Server: webhook.NewServer(webhook.Options{Host: o.WebhookHost, Port: o.WebhookPort, TLSOpts: serving}), drain: p.ending,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("build manager: %w", err)
	}
	return mgr, nil
}

// unlimited returns a copy of a config without the client's own rate limit, for the reads that verdicts wait for.
func unlimited(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.QPS = -1
	return c
}

// addChecks makes /readyz mean that a correct verdict is possible: there is a certificate, the copy of the leases is
// fresh, the webhook answers and the replica is not ending. /healthz depends on nothing outside the process.
func (p *parts) addChecks() error {
	check := func(ready func() error) healthz.Checker {
		return func(*http.Request) error { return ready() }
	}
	return errors.Join(
		p.manager.AddHealthzCheck("ping", healthz.Ping),
		p.manager.AddReadyzCheck("certificate", check(p.certificates.Ready)),
		p.manager.AddReadyzCheck("leases", check(p.view.Ready)),
		p.manager.AddReadyzCheck("webhook", p.manager.GetWebhookServer().StartedChecker()),
		p.manager.AddReadyzCheck("ending", p.ending.ready),
	)
}

// clients are the clients that are not the manager's own.
type clients struct {
	kube     kubernetes.Interface
	metadata metadata.Interface
	live     client.Client
}

func newClients(c *rest.Config, scheme *runtime.Scheme) (clients, error) {
	kube, err := kubernetes.NewForConfig(c)
	if err != nil {
		return clients{}, fmt.Errorf("build client: %w", err)
	}
	objects, err := metadata.NewForConfig(c)
	if err != nil {
		return clients{}, fmt.Errorf("build metadata client: %w", err)
	}
	// Without a cache: every read goes to the API server.
	live, err := client.New(c, client.Options{Scheme: scheme})
	if err != nil {
		return clients{}, fmt.Errorf("build live client: %w", err)
	}
	return clients{kube, objects, live}, nil
}
