// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fencedlease/fencedlease/test/env"
	"github.com/fencedlease/fencedlease/test/env/product"
	"github.com/fencedlease/fencedlease/test/robustness/history"
)

// replicas is how many managers there are.
const replicas = 2

// managerProcess is a replica of the manager.
type managerProcess struct {
	*env.Program
	name     string
	port     int
	probes   string
	hub      *env.Proxy
	apiProxy *env.Proxy

	// restarting is held by whoever starts the process again: a fault that has killed it, or the supervisor.
	restarting sync.Mutex
}

// startManagers builds the manager and starts its replicas behind the hub, which stands for the Service.
func (w *World) startManagers(ctx context.Context) error {
	binary, err := w.managerBinary(ctx)
	if err != nil {
		return err
	}
	for i := range replicas {
		m := &managerProcess{name: "manager-" + strconv.Itoa(i), hub: w.hub}
		if m.port, err = w.cluster.Port(); err != nil {
			return err
		}
		probes, err := w.cluster.Port()
		if err != nil {
			return err
		}
		m.probes = env.Local(probes)
		var kubeconfig string
		if kubeconfig, m.apiProxy, err = w.access(ctx, m.name, product.Namespace, product.ServiceAccount, i); err != nil {
			return err
		}
		m.Program = w.cluster.NewProgram(m.name, binary, append(os.Environ(), "KUBECONFIG="+kubeconfig),
			"--namespace="+product.Namespace, "--leader-elect", "--drain-delay=0s",
			"--webhook-host=127.0.0.1", "--webhook-port="+strconv.Itoa(m.port), "--webhook-url="+w.hub.URL(),
			"--health-probe-bind-address="+m.probes,
			// Serving certificates are renewed every 20 seconds, their authority after 70.
			"--cert-leaf-life=30s", "--cert-settle=5s", "--cert-ca-life=106s",
		)
		w.managers = append(w.managers, m)
		if err := m.start(ctx, w); err != nil {
			return err
		}
	}
	return product.AwaitValidation(ctx, w.cluster)
}

// managerBinary returns the path of the manager's binary.
func (w *World) managerBinary(ctx context.Context) (string, error) {
	if w.options.Manager != "" {
		return w.options.Manager, nil
	}
	return product.Build(ctx, w.cluster)
}

// access returns a kubeconfig of a service account that leads through a proxy of its own to an API server.
func (w *World) access(ctx context.Context, name, namespace, account string, apiServer int) (string, *env.Proxy, error) {
	proxy, err := w.cluster.StartProxy(ctx, w.cluster.APIServerPort(apiServer%w.cluster.APIServers()))
	if err != nil {
		return "", nil, err
	}
	// It creates the account; its own token is too short for long runs.
	config, err := w.cluster.ServiceAccount(ctx, namespace, account)
	if err != nil {
		return "", nil, err
	}
	clientset, err := kubernetes.NewForConfig(w.cluster.Config())
	if err != nil {
		return "", nil, fmt.Errorf("make client: %w", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](48 * 3600)}}
	token, err := clientset.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", nil, fmt.Errorf("request token of service account: %w", err)
	}
	config = rest.CopyConfig(config)
	config.BearerToken, config.Host = token.Status.Token, proxy.URL()
	kubeconfig, err := w.cluster.WriteKubeconfig(name, config)
	return kubeconfig, proxy, err
}

// start starts the manager, and returns when it is ready and API servers are sent to it.
func (m *managerProcess) start(ctx context.Context, w *World) error {
	if err := m.Start(); err != nil {
		return err
	}
	err := w.eventually(ctx, "wait for "+m.name, func(ctx context.Context) error {
		select {
		case <-m.Ended():
			return errors.New("it has ended")
		default:
		}
		return m.ready(ctx)
	})
	if err != nil {
		return err
	}
	m.hub.Add(m.port)
	return nil
}

// ready returns nil if the manager says that it is.
func (m *managerProcess) ready(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.probes+"/readyz", nil)
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

// kill ends the manager at once, and keeps the supervisor away until revive. Its endpoint is taken away, as a Service does
// when the pod is gone.
func (m *managerProcess) kill() error {
	m.restarting.Lock()
	err := m.Kill()
	m.hub.Remove(m.port)
	return err
}

// revive starts a manager that was killed.
func (m *managerProcess) revive(ctx context.Context, w *World) error {
	defer m.restarting.Unlock()
	return m.start(ctx, w)
}

// supervise does what a kubelet does: it starts a manager again that has ended by itself, as it does when it has lost its
// election. That is recorded, as it costs time.
func (m *managerProcess) supervise(ctx context.Context, w *World) {
	for history.Sleep(ctx, pollInterval) == nil {
		select {
		case <-m.Ended():
		default:
			continue
		}
		m.restarting.Lock()
		select {
		case <-m.Ended():
			entry := history.Fault{Kind: KindEnded, Target: m.name, Begin: history.Now(), Effect: "started again"}
			m.hub.Remove(m.port)
			if err := m.start(ctx, w); err != nil && ctx.Err() == nil {
				w.options.Say("start %s again: %v", m.name, err)
			}
			entry.End = history.Now()
			if err := w.inject.Log.Write(entry); err != nil {
				w.options.Say("record that %s has ended: %v", m.name, err)
			}
			w.options.Say("%s had ended by itself, and is ready again after %s", m.name, time.Duration(entry.End-entry.Begin).Round(time.Millisecond))
		default:
		}
		m.restarting.Unlock()
	}
}

// Pause stops the manager in its tracks, as soon as it runs, and keeps the supervisor away until Continue.
func (m *managerProcess) Pause() error {
	var err error
	for range 100 {
		m.restarting.Lock()
		if err = m.Program.Pause(); err == nil {
			return nil
		}
		m.restarting.Unlock()
		time.Sleep(pollInterval)
	}
	return err
}

// Continue lets the manager go on.
func (m *managerProcess) Continue() error {
	defer m.restarting.Unlock()
	return m.Program.Continue()
}
