// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// prepareAPIServers decides on ports and flags.
func (e *Environment) prepareAPIServers(ctx context.Context) error {
	addresses := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)}
	if ip := hostAddress(); ip != nil {
		addresses = append(addresses, ip)
	}
	serving, err := e.ca.server([]string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost",
	}, addresses)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"apiserver.crt": serving.cert, "apiserver.key": serving.key, "audit-policy.yaml": []byte(auditPolicy),
	}
	for name, data := range files {
		if err := os.WriteFile(e.file(name), data, 0o600); err != nil {
			return fmt.Errorf("write file of API servers: %w", err)
		}
	}
	for i := range e.options.APIServers {
		port, err := e.ports.take()
		if err != nil {
			return err
		}
		etcd, err := e.etcdServers(ctx, i)
		if err != nil {
			return err
		}
		name := "kube-apiserver-" + strconv.Itoa(i)
		args := []string{
			"--etcd-servers=" + etcd,
			// Reachable by the address in the EndpointSlices, which may not be a loopback address.
			"--bind-address=0.0.0.0",
			"--advertise-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(port),
			"--client-ca-file=" + e.file("ca.crt"),
			"--tls-cert-file=" + e.file("apiserver.crt"),
			"--tls-private-key-file=" + e.file("apiserver.key"),
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + e.file("sa.pub"),
			"--service-account-signing-key-file=" + e.file("sa.key"),
			"--service-cluster-ip-range=10.0.0.0/24",
			"--authorization-mode=RBAC",
			// Services resolve to their endpoints, of which there are none: nothing is ever sent to a cluster IP, which would
			// leave this machine.
			"--enable-aggregator-routing=true",
			// Its own would write an address that is refused; writeEndpoints does the work.
			"--endpoint-reconciler-type=none",
		}
		if e.options.AuditLog {
			args = append(args, "--audit-log-path="+e.AuditLogPath(i), "--audit-policy-file="+e.file("audit-policy.yaml"), "--audit-log-mode=blocking")
		}
		e.apiServerPorts = append(e.apiServerPorts, port)
		e.apiServers = append(e.apiServers, &process{
			name: name, path: e.Binary("kube-apiserver"), args: append(args, e.options.APIServerArgs...), dir: e.dir, logPath: e.file(name + ".log"),
		})
	}
	e.admin.Host = localURL("https", e.apiServerPorts[0])
	return nil
}

// startAPIServers starts all of them at the same time.
func (e *Environment) startAPIServers(ctx context.Context) error {
	for _, p := range e.apiServers {
		if err := p.start(); err != nil {
			return err
		}
	}
	for i := range e.apiServers {
		if err := e.awaitAPIServer(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// StartAPIServer starts API server i again at its old address, and returns when it is ready.
func (e *Environment) StartAPIServer(ctx context.Context, i int) error {
	if err := e.apiServers[i].start(); err != nil {
		return err
	}
	return e.awaitAPIServer(ctx, i)
}

// StopAPIServer ends API server i, in order if that does not take long.
func (e *Environment) StopAPIServer(i int) error { return e.apiServers[i].stop(stopGrace) }

// KillAPIServer ends API server i at once.
func (e *Environment) KillAPIServer(i int) error { return e.apiServers[i].stop(0) }

// RestartAPIServer stops API server i and starts it at the same address. It returns when it is ready.
func (e *Environment) RestartAPIServer(ctx context.Context, i int) error {
	if err := e.StopAPIServer(i); err != nil {
		return err
	}
	return e.StartAPIServer(ctx, i)
}

// PauseAPIServer stops API server i in its tracks: connections stay open, nothing is answered.
func (e *Environment) PauseAPIServer(i int) error { return e.apiServers[i].signal(syscall.SIGSTOP) }

// ContinueAPIServer lets API server i go on.
func (e *Environment) ContinueAPIServer(i int) error { return e.apiServers[i].signal(syscall.SIGCONT) }

// APIServerPort returns the port of API server i.
func (e *Environment) APIServerPort(i int) int { return e.apiServerPorts[i] }

// APIServers returns how many API servers there are.
func (e *Environment) APIServers() int { return len(e.apiServers) }

// AuditLogPath returns the audit log of API server i, one JSON object a line.
func (e *Environment) AuditLogPath(i int) string { return e.file("audit-" + strconv.Itoa(i) + ".log") }

// awaitAPIServer returns when API server i says that it is ready.
func (e *Environment) awaitAPIServer(ctx context.Context, i int) error {
	config := e.Via(i, e.admin)
	return e.awaitHealth(ctx, e.apiServers[i], config.Host+"/readyz", config)
}

// awaitHealth returns when the URL of a process answers 200, or with an error as soon as the process has ended.
func (e *Environment) awaitHealth(ctx context.Context, p *process, url string, config *rest.Config) error {
	transport := &http.Transport{DisableKeepAlives: true}
	if config == nil {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a health endpoint of this machine
	} else {
		tlsConfig, err := rest.TLSConfigFor(config)
		if err != nil {
			return fmt.Errorf("make TLS configuration: %w", err)
		}
		transport.TLSClientConfig = tlsConfig
	}
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	return p.await(ctx, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, response.Status)
		}
		return nil
	})
}

// await returns when check succeeds, or with an error as soon as the process has ended.
func (p *process) await(ctx context.Context, check func(context.Context) error) error {
	var last error
	ended := p.ended()
	err := wait.PollUntilContextTimeout(ctx, pollInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-ended:
			return false, fmt.Errorf("%s has ended", p.name)
		default:
		}
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w (last answer: %w)\n%s", p.name, err, last, p.logTail())
	}
	return nil
}

// writeEndpoints lists every API server in an EndpointSlice of the kubernetes Service, as real clusters do. EndpointSlices
// refuse loopback addresses; on a machine that has no other address there are none.
func (e *Environment) writeEndpoints(ctx context.Context) error {
	ip := hostAddress()
	if ip == nil {
		return nil
	}
	clientset, err := kubernetes.NewForConfig(e.admin)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	for i, port := range e.apiServerPorts {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name:      "kubernetes-" + strconv.Itoa(i),
				Namespace: metav1.NamespaceDefault,
				Labels:    map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{ip.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(port))}},
		}
		// The namespace may not be there yet on a new server.
		var last error
		err := wait.PollUntilContextTimeout(ctx, pollInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
			_, last = clientset.DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice, metav1.CreateOptions{})
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("create EndpointSlice of API server %d: %w (last answer: %w)", i, err, last)
		}
	}
	return nil
}

// hostAddress returns an IPv4 address of this machine that other machines could reach, or nil.
func hostAddress() net.IP {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, address := range addresses {
		ip, _, err := net.ParseCIDR(address.String())
		if err == nil && ip.To4() != nil && ip.IsGlobalUnicast() && !strings.HasPrefix(ip.String(), "169.254.") {
			return ip.To4()
		}
	}
	return nil
}
