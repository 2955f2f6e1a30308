// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/probe"
)

// The rights to list the endpoints of the API servers and to create probes are Roles of their own in config/rbac, since
// they are for one namespace each.

const (
	// apiServerName is a name that every API server's certificate is for.
	apiServerName = "kubernetes.default.svc"
	apiService    = "kubernetes"
)

// ProbeOutcome is what a probe through one API server showed. The values are a closed set: they label a metric.
type ProbeOutcome string

const (
	// ProbeInForce means that the API server works with the registration that was asked for.
	ProbeInForce ProbeOutcome = "InForce"
	// ProbeNotYet means that it does not yet.
	ProbeNotYet ProbeOutcome = "NotYet"
	// ProbeUnreachable means that no answer came.
	ProbeUnreachable ProbeOutcome = "Unreachable"
	// ProbeFailed means that the API server answered something else: the message says what.
	ProbeFailed ProbeOutcome = "Failed"
)

// ProbeResult is the outcome for one API server.
type ProbeResult struct {
	// Server is the address that was asked.
	Server  string
	Outcome ProbeOutcome
	Message string
}

// ProbeReport is the outcome for all API servers.
type ProbeReport struct {
	Results []ProbeResult
	// Fallback says why only the configured address was asked and not every API server, or is empty.
	Fallback string
}

// Prober finds out whether API servers have a registration in force.
type Prober interface {
	// Probe asks every API server for the registration with this hash.
	Probe(ctx context.Context, hash string) (ProbeReport, error)
}

// Endpoints returns the addresses of the API servers as <host>:<port>.
type Endpoints func(ctx context.Context) ([]string, error)

// EndpointsOf returns the endpoints of the Service kubernetes. The reader should not be a cache: it is asked rarely.
func EndpointsOf(reader client.Reader) Endpoints {
	return func(ctx context.Context) ([]string, error) {
		slicesOf := &discoveryv1.EndpointSliceList{}
		if err := reader.List(ctx, slicesOf, client.InNamespace(metav1.NamespaceDefault),
			client.MatchingLabels{discoveryv1.LabelServiceName: apiService}); err != nil {
			return nil, fmt.Errorf("list EndpointSlices of the Service %s: %w", apiService, err)
		}
		addresses := map[string]bool{}
		for _, s := range slicesOf.Items {
			for _, port := range s.Ports {
				for _, endpoint := range s.Endpoints {
					for _, host := range endpoint.Addresses {
						addresses[net.JoinHostPort(host, strconv.Itoa(int(ptr.Deref(port.Port, 443))))] = true
					}
				}
			}
		}
		return slices.Sorted(maps.Keys(addresses)), nil
	}
}

// directProber addresses each API server directly, so that no balancer chooses for it.
type directProber struct {
	config    *rest.Config
	namespace string
	endpoints Endpoints

	mu      sync.Mutex
	clients map[string]dynamic.Interface
}

// NewProber returns a prober that makes dry-run creates of FencedLeases in a namespace. timeout bounds each of them.
func NewProber(config *rest.Config, namespace string, endpoints Endpoints, timeout time.Duration) Prober {
	config = rest.CopyConfig(config)
	config.Timeout = timeout
	// A few requests after each change of guards.
	config.QPS = -1
	return &directProber{config: config, namespace: namespace, endpoints: endpoints, clients: map[string]dynamic.Interface{}}
}

// Probe implements Prober.
func (p *directProber) Probe(ctx context.Context, hash string) (ProbeReport, error) {
	addresses, err := p.endpoints(ctx)
	var fallback string
	switch {
	case err != nil:
		fallback = "the API servers' addresses cannot be listed (" + err.Error() + ")"
	case len(addresses) == 0:
		fallback = "the Service kubernetes has no endpoints"
	default:
		results := p.probeAll(ctx, addresses, hash)
		if !slices.ContainsFunc(results, func(r ProbeResult) bool { return r.Outcome != ProbeUnreachable }) {
			fallback = "no API server can be reached directly (" + results[0].Message + ")"
			break
		}
		return ProbeReport{Results: results}, nil
	}
	results := p.probeAll(ctx, []string{""}, hash)
	return ProbeReport{Results: results, Fallback: fallback}, ctx.Err()
}

// probeAll asks all addresses at once. The empty address is the configured one.
func (p *directProber) probeAll(ctx context.Context, addresses []string, hash string) []ProbeResult {
	p.forgetOthers(addresses)
	results := make([]ProbeResult, len(addresses))
	var group sync.WaitGroup
	for i, address := range addresses {
		group.Go(func() { results[i] = p.probeServer(ctx, address, hash) })
	}
	group.Wait()
	return results
}

// probeServer asks one API server for everything that the registration is made of.
func (p *directProber) probeServer(ctx context.Context, address, hash string) ProbeResult {
	result := ProbeResult{Server: address, Outcome: ProbeInForce}
	if address == "" {
		result.Server = p.config.Host
	}
	c, err := p.client(address)
	if err != nil {
		result.Outcome, result.Message = ProbeFailed, err.Error()
		return result
	}
	for _, kind := range probe.Kinds() {
		_, err := c.Resource(v1alpha1.Resource).Namespace(p.namespace).Create(ctx, p.object(kind, hash),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: string(FieldManager)})
		if result.Outcome, result.Message = judgeProbe(kind, hash, err); result.Outcome != ProbeInForce {
			return result
		}
	}
	return result
}

// object returns the probe object.
func (p *directProber) object(kind probe.Kind, hash string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	o.SetGroupVersionKind(v1alpha1.Kind)
	o.SetNamespace(p.namespace)
	o.SetName(probe.Name(kind, hash))
	return o
}

// judgeProbe says what the answer to a probe shows.
func judgeProbe(kind probe.Kind, hash string, err error) (ProbeOutcome, string) {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return ProbeNotYet, fmt.Sprintf("the probe of the %s was admitted", kind)
	case !errors.As(err, &status):
		return ProbeUnreachable, err.Error()
	case status.Status().Code != http.StatusForbidden, !strings.Contains(err.Error(), probe.Refusal(hash)):
		return ProbeFailed, err.Error()
	case kind == probe.Policies && !strings.Contains(err.Error(), probe.Stamped(hash)):
		return ProbeNotYet, "the stamping policy did not work on the probe"
	default:
		return ProbeInForce, ""
	}
}

// client returns the client for an address, and keeps it for the next time.
func (p *directProber) client(address string) (dynamic.Interface, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, known := p.clients[address]; known {
		return c, nil
	}
	c, err := dynamic.NewForConfig(directConfig(p.config, address))
	if err != nil {
		return nil, fmt.Errorf("create client for API server %s: %w", address, err)
	}
	p.clients[address] = c
	return c, nil
}

// forgetOthers drops clients of API servers that are gone.
func (p *directProber) forgetOthers(addresses []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.clients, func(address string, _ dynamic.Interface) bool {
		return address != "" && !slices.Contains(addresses, address)
	})
}

// directConfig returns the configuration for one API server. The configured address, if it is that server's, is used as it
// is.
func directConfig(config *rest.Config, address string) *rest.Config {
	if address == "" || hostOf(config.Host) == address {
		return config
	}
	direct := rest.CopyConfig(config)
	direct.Host = "https://" + address
	if direct.ServerName == "" && !direct.Insecure {
		direct.ServerName = apiServerName
	}
	return direct
}

// hostOf returns <host>:<port> of a configured address.
func hostOf(address string) string {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return u.Host
}
