// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

// Package product installs FencedLease into a control plane of package env as users do, from dist/install.yaml, and runs
// its manager in the test's process or as processes of their own, with the rights of the manager's own service account.
package product

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/manager"
	"github.com/fencedlease/fencedlease/test/env"
)

const (
	// Namespace is the manager's.
	Namespace = "fencedlease-system"
	// ServiceAccount is the manager's.
	ServiceAccount = "fencedlease-controller-manager"

	pollInterval = 50 * time.Millisecond
	patience     = 90 * time.Second
)

// Install applies dist/install.yaml and lets the manager read and seal all kinds of the groups that tests guard.
func Install(ctx context.Context, cluster *env.Environment, groups ...string) error {
	file := filepath.Join(cluster.ModuleRoot(), "dist", "install.yaml")
	if _, err := cluster.Kubectl(ctx, "apply", "--server-side", "-f", file); err != nil {
		return fmt.Errorf("apply dist/install.yaml: %w", err)
	}
	c, err := env.Client(cluster.Config())
	if err != nil {
		return err
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{
			Name: "guarded-kinds", Labels: map[string]string{"rbac.fencedlease.io/aggregate-to-guarded-kinds": "true"},
		},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: append([]string{env.GuardedGroup}, groups...), Resources: []string{"*"},
			Verbs: []string{"get", "list", "watch", "patch", "delete"},
		}},
	}
	if err := c.Create(ctx, role); err != nil {
		return fmt.Errorf("create ClusterRole: %w", err)
	}
	// Without a controller manager nobody aggregates roles, so the same rules are bound directly, too.
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "guarded-kinds"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: ServiceAccount}},
	}
	if err := c.Create(ctx, binding); err != nil {
		return fmt.Errorf("create ClusterRoleBinding: %w", err)
	}
	return nil
}

// Manager is a running manager.
type Manager struct {
	// Port is where its webhook listens, ProbeURL where it tells its health.
	Port     int
	ProbeURL string
	// Registry has its metrics.
	Registry *prometheus.Registry

	cancel context.CancelFunc
	ended  chan error
}

// Start installs the product and the guarded kinds, and runs a manager.
func Start(ctx context.Context, cluster *env.Environment, log logr.Logger) (*Manager, error) {
	if err := cluster.InstallGuardedCRD(ctx); err != nil {
		return nil, err
	}
	if err := Install(ctx, cluster); err != nil {
		return nil, err
	}
	return StartManager(ctx, cluster, log)
}

// AsManager returns a client of the manager's own user.
func AsManager(ctx context.Context, cluster *env.Environment) (client.Client, error) {
	config, err := cluster.ServiceAccount(ctx, Namespace, ServiceAccount)
	if err != nil {
		return nil, err
	}
	return env.Client(config)
}

// StartManager runs a manager and returns when it is ready. Mutations change its options.
func StartManager(ctx context.Context, cluster *env.Environment, log logr.Logger, mutations ...func(*manager.Options)) (*Manager, error) {
	config, err := cluster.ServiceAccount(ctx, Namespace, ServiceAccount)
	if err != nil {
		return nil, err
	}
	port, err := cluster.Port()
	if err != nil {
		return nil, err
	}
	probes, err := cluster.Port()
	if err != nil {
		return nil, err
	}
	options := manager.NewOptions()
	options.Namespace = Namespace
	options.WebhookHost, options.WebhookPort = "127.0.0.1", port
	options.WebhookURL = "https://127.0.0.1:" + strconv.Itoa(port)
	options.ProbeAddr = "127.0.0.1:" + strconv.Itoa(probes)
	options.DrainDelay = 0
	for _, mutate := range mutations {
		mutate(options)
	}
	m := &Manager{
		Port: port, ProbeURL: "http://" + options.ProbeAddr, Registry: prometheus.NewRegistry(), ended: make(chan error, 1),
	}
	// The manager lives for longer than the context that bounds its start.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.cancel = cancel
	go func() {
		m.ended <- manager.Run(running, options, manager.Dependencies{Config: config, Registry: m.Registry, Log: log})
	}()
	if err := errors.Join(m.awaitReady(ctx), AwaitValidation(ctx, cluster)); err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

// AwaitValidation waits until FencedLeases can be written: until every API server calls the manager by its URL.
func AwaitValidation(ctx context.Context, cluster *env.Environment) error {
	for i := range cluster.APIServers() {
		c, err := env.Client(cluster.Via(i, cluster.Config()))
		if err != nil {
			return err
		}
		var last error
		err = wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(ctx context.Context) (bool, error) {
			last = c.Create(ctx, env.NewLease(metav1.NamespaceDefault, "first"), client.DryRunAll)
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("wait for the validation of FencedLeases: %w: %w", err, last)
		}
	}
	return nil
}

// Stop ends the manager and returns what Run returned.
func (m *Manager) Stop() error {
	m.cancel()
	err := <-m.ended
	m.ended <- err
	return err
}

// Wait returns what Run returned when the manager has ended by itself.
func (m *Manager) Wait(ctx context.Context) error {
	select {
	case err := <-m.ended:
		m.ended <- err
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *Manager) awaitReady(ctx context.Context) error {
	last := errors.New("not asked yet")
	err := wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-m.ended:
			m.ended <- err
			return false, fmt.Errorf("the manager has ended: %w", err)
		default:
		}
		last = m.Ready(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the manager: %w (last: %w)", err, last)
	}
	return nil
}

// Ready returns nil if the manager says that it is ready.
func (m *Manager) Ready(ctx context.Context) error { return ready(ctx, m.ProbeURL) }

func ready(ctx context.Context, probeURL string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, probeURL+"/readyz?verbose", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz answers %s", response.Status)
	}
	return nil
}

// AwaitCondition waits until a FencedLease has a condition for its spec generation, with the status, and reads the lease.
func AwaitCondition(ctx context.Context, c client.Client, lease *v1alpha1.FencedLease, condition string, status metav1.ConditionStatus) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
			if apierrors.IsNotFound(err) {
				return false, err
			}
			return false, nil
		}
		found := meta.FindStatusCondition(lease.Status.Conditions, condition)
		return found != nil && found.Status == status && found.ObservedGeneration == lease.Generation, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s=%s of FencedLease %s/%s: %w; conditions: %+v",
			condition, status, lease.Namespace, lease.Name, err, lease.Status.Conditions)
	}
	return nil
}

// CreateLease creates a FencedLease and returns when its guards are in force.
func CreateLease(ctx context.Context, c client.Client, lease *v1alpha1.FencedLease) error {
	if err := c.Create(ctx, lease); err != nil {
		return fmt.Errorf("create FencedLease: %w", err)
	}
	return AwaitCondition(ctx, c, lease, v1alpha1.ConditionReady, metav1.ConditionTrue)
}
