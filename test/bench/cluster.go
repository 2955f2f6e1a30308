// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
)

const (
	leaseName = "bench"
	marksName = "fencedlease-marks"

	pollInterval = 50 * time.Millisecond
	patience     = 90 * time.Second
)

// cluster is a control plane with all that writes are compared on.
type cluster struct {
	env    *env.Environment
	client client.Client
	// watcher is the same client, which can watch as well.
	watcher client.WithWatch
	// writer sends writes as the administrator; carrier sends the current token with each request.
	writer, carrier *http.Client
	host            string
	// token is that of the lazy term, without an operation, and sealedToken that of the sealed one.
	token, sealedToken string
	children           []*child
	// managerMetrics, noopMetrics and managerProfile are addresses.
	managerMetrics, noopMetrics, managerProfile string
	// written counts all writes, so that each has an operation of its own.
	written atomic.Int64
}

func startCluster(ctx context.Context, manager string) (*cluster, error) {
	e, err := env.Start(ctx, env.Options{})
	if err != nil {
		return nil, err
	}
	c := &cluster{env: e, host: e.Config().Host}
	if err := c.start(ctx, manager); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) start(ctx context.Context, manager string) error {
	var err error
	if c.client, err = env.Client(c.env.Config()); err != nil {
		return err
	}
	if c.watcher, err = client.NewWithWatch(c.env.Config(), client.Options{Scheme: c.client.Scheme()}); err != nil {
		return fmt.Errorf("make watching client: %w", err)
	}
	if c.writer, err = rest.HTTPClientFor(c.env.Config()); err != nil {
		return fmt.Errorf("make HTTP client: %w", err)
	}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return c.env.InstallGuardedCRD(ctx) },
		c.createReports,
		func(ctx context.Context) error { return product.Install(ctx, c.env) },
		func(ctx context.Context) error { return c.startManager(ctx, manager) },
		c.acquire,
		c.acquireSealed,
		c.copyPolicy,
		c.startNoop,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stop ends every process.
func (c *cluster) stop() error {
	var errs []error
	for _, child := range c.children {
		errs = append(errs, child.stop())
	}
	return errors.Join(append(errs, c.env.Stop())...)
}

// createReports creates the objects before anything guards them: one for each writer and kind of admission.
func (c *cluster) createReports(ctx context.Context) error {
	for _, k := range kinds() {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: k.namespace()}}
		if err := c.client.Create(ctx, namespace); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create namespace: %w", err)
		}
		for i := range maxWriters {
			report := env.NewReport(k.namespace(), k.prefix()+strconv.Itoa(i), "first")
			if err := c.client.Create(ctx, report); err != nil {
				return fmt.Errorf("create report: %w", err)
			}
		}
	}
	return nil
}

// startManager runs the manager's binary with the rights of its service account.
func (c *cluster) startManager(ctx context.Context, path string) error {
	config, err := c.env.ServiceAccount(ctx, product.Namespace, product.ServiceAccount)
	if err != nil {
		return err
	}
	kubeconfig, err := c.env.WriteKubeconfig("manager", config)
	if err != nil {
		return err
	}
	var ports, addresses [4]string
	for i := range ports {
		port, err := c.env.Port()
		if err != nil {
			return err
		}
		ports[i] = strconv.Itoa(port)
		addresses[i] = "127.0.0.1:" + ports[i]
	}
	webhook, probes, metrics, profiles := addresses[0], addresses[1], addresses[2], addresses[3]
	child, err := startChild(c.env.Dir(), "manager", []string{"KUBECONFIG=" + kubeconfig}, path,
		"--namespace="+product.Namespace,
		"--webhook-host=127.0.0.1",
		"--webhook-port="+ports[0],
		"--webhook-url=https://"+webhook,
		"--health-probe-bind-address="+probes,
		"--metrics-bind-address="+metrics,
		"--metrics-secure=false",
		"--pprof-bind-address="+profiles,
		"--drain-delay=0s")
	if err != nil {
		return err
	}
	c.children = append(c.children, child)
	c.managerMetrics, c.managerProfile = "http://"+metrics+"/metrics", "http://"+profiles+"/debug/pprof/profile?seconds=10"
	return c.await(ctx, "the manager to be ready", func(ctx context.Context) error {
		_, err := get(ctx, "http://"+probes+"/readyz")
		return err
	})
}

// acquire creates the lease under which all guarded objects are written, and takes it.
func (c *cluster) acquire(ctx context.Context) error {
	lease := env.NewLease(fenced.namespace(), leaseName)
	// API servers hear a moment late where the manager validates FencedLeases.
	err := c.await(ctx, "FencedLeases to be validated", func(ctx context.Context) error {
		return c.client.Create(ctx, lease.DeepCopy(), client.DryRunAll)
	})
	if err != nil {
		return err
	}
	if err := product.CreateLease(ctx, c.client, lease); err != nil {
		return err
	}
	if err := env.Acquire(ctx, c.client, lease, "bench"); err != nil {
		return err
	}
	c.token = env.Token(lease, "")
	config := c.env.Config()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "admin", Groups: []string{"system:masters"},
		Extra: map[string][]string{v1alpha1.TokenKey(leaseName): {c.token}},
	}
	if c.carrier, err = rest.HTTPClientFor(config); err != nil {
		return fmt.Errorf("make HTTP client: %w", err)
	}
	return nil
}

// acquireSealed creates the lease of the sealed term, takes it, and waits for the seal.
func (c *cluster) acquireSealed(ctx context.Context) error {
	lease := env.NewLease(sealed.namespace(), leaseName, func(l *v1alpha1.FencedLease) { l.Spec.Handover = v1alpha1.HandoverSeal })
	if err := product.CreateLease(ctx, c.client, lease); err != nil {
		return err
	}
	if _, err := c.handOver(ctx, lease, "bench"); err != nil {
		return err
	}
	c.sealedToken = env.Token(lease, "")
	return nil
}

// tokenOf returns the token under which a kind's objects are written.
func (c *cluster) tokenOf(k kind) string {
	if k == sealed {
		return c.sealedToken
	}
	return c.token
}

// copyPolicy makes the product's own mark policy hold in another namespace, where nothing calls the manager.
func (c *cluster) copyPolicy(ctx context.Context) error {
	live := &admissionv1.ValidatingAdmissionPolicy{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: marksName}, live); err != nil {
		return fmt.Errorf("get mark policy: %w", err)
	}
	meta := metav1.ObjectMeta{Name: "bench-marks"}
	marks := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: live.Spec}
	marks.Spec.MatchConstraints.NamespaceSelector = onlyIn(policy.namespace())
	if err := c.client.Create(ctx, marks); err != nil {
		return fmt.Errorf("create mark policy: %w", err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: meta.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	if err := c.client.Create(ctx, binding); err != nil {
		return fmt.Errorf("create binding of mark policy: %w", err)
	}
	return nil
}

// startNoop runs the no-op webhook and registers it as the product registers its own.
func (c *cluster) startNoop(ctx context.Context) error {
	cert, key, ca, err := c.env.ServingCertificate()
	if err != nil {
		return err
	}
	files := map[string][]byte{"noop.crt": cert, "noop.key": key}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(c.env.Dir(), name), data, 0o600); err != nil {
			return fmt.Errorf("write certificate of no-op webhook: %w", err)
		}
	}
	port, err := c.env.Port()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	child, err := startChild(c.env.Dir(), "noop", nil, self, noopCommand,
		"-address="+address, "-cert="+filepath.Join(c.env.Dir(), "noop.crt"), "-key="+filepath.Join(c.env.Dir(), "noop.key"))
	if err != nil {
		return err
	}
	c.children = append(c.children, child)
	c.noopMetrics = "https://" + address + "/metrics"

	live := &admissionv1.ValidatingWebhookConfiguration{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: "fencedlease-guards"}, live); err != nil {
		return fmt.Errorf("get webhook configuration: %w", err)
	}
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "bench-noop"}}
	for _, webhook := range live.Webhooks {
		if webhook.Name == "probe.guards.fencedlease.io" {
			continue
		}
		webhook.NamespaceSelector = onlyIn(noop.namespace())
		webhook.ClientConfig = admissionv1.WebhookClientConfig{URL: ptr.To("https://" + address + "/noop"), CABundle: ca}
		configuration.Webhooks = append(configuration.Webhooks, webhook)
	}
	if err := c.client.Create(ctx, configuration); err != nil {
		return fmt.Errorf("register no-op webhook: %w", err)
	}
	return nil
}

func onlyIn(namespace string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
}

// await asks until check is content. It gives up at once when a process has ended.
func (c *cluster) await(ctx context.Context, what string, check func(context.Context) error) error {
	last := errors.New("not asked yet")
	err := wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(ctx context.Context) (bool, error) {
		for _, child := range c.children {
			if err := child.ended(); err != nil {
				return false, err
			}
		}
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w (last: %w)", what, err, last)
	}
	return nil
}

// saveProfile writes a CPU profile of the manager while 16 writers write.
func (c *cluster) saveProfile(ctx context.Context, path string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	profiled := make(chan error, 1)
	go func() {
		data, err := get(ctx, c.managerProfile)
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		profiled <- err
	}()
	_, err := c.cell(ctx, fenced, writerCounts()[1], 0, 11*time.Second)
	if err = errors.Join(err, <-profiled); err != nil {
		return fmt.Errorf("profile manager: %w", err)
	}
	return nil
}

// get returns the body of a page of one of the children.
func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := insecure.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, response.Status)
	}
	return body, nil
}
