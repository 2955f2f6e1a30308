// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// daemons returns what makes the cluster.
func daemons(p place) ([]daemon, error) {
	authenticated, err := p.apiServerAnswers()
	if err != nil {
		return nil, err
	}
	etcd, containerd := dials("tcp", "127.0.0.1:2379"), dials("unix", p.socket())
	api := func() error { return authenticated("/readyz", nil) }
	pki := func(name string) string { return p.file("pki", name) }
	all := []daemon{
		{name: "etcd", args: []string{
			"--data-dir=" + p.file("etcd"), "--listen-client-urls=" + etcdServer, "--advertise-client-urls=" + etcdServer,
			"--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync", "--log-level=warn",
		}},
		{name: "kube-apiserver", needs: []func() error{etcd}, args: []string{
			"--etcd-servers=" + etcdServer, "--advertise-address=" + nodeAddress, "--secure-port=6443",
			"--service-cluster-ip-range=" + serviceNetwork, "--allow-privileged", "--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction", "--client-ca-file=" + pki("ca.crt"),
			"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local", "--service-account-key-file=" + pki("sa.pub"),
			"--service-account-signing-key-file=" + pki("sa.key"), "--kubelet-certificate-authority=" + pki("ca.crt"),
			"--kubelet-client-certificate=" + pki("kubelet-client.crt"), "--kubelet-client-key=" + pki("kubelet-client.key"),
			// There is no name service that would know the node.
			"--kubelet-preferred-address-types=InternalIP",
		}},
		{name: "kube-controller-manager", needs: []func() error{api}, args: []string{
			"--kubeconfig=" + p.file("kube-controller-manager.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1",
			"--cert-dir=" + p.file("kube-controller-manager"), "--use-service-account-credentials",
			"--service-account-private-key-file=" + pki("sa.key"), "--root-ca-file=" + pki("ca.crt"),
		}},
		{name: "kube-scheduler", needs: []func() error{api}, args: []string{
			"--kubeconfig=" + p.file("kube-scheduler.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1",
			"--cert-dir=" + p.file("kube-scheduler"),
		}},
		{name: "containerd", path: "/usr/bin/containerd", args: []string{"--config", p.file("containerd.toml")}},
		// The kubelet ends if containerd is not there.
		{name: "kubelet", needs: []func() error{containerd, api}, args: []string{
			"--config=" + p.file("kubelet.yaml"), "--kubeconfig=" + p.file("kubelet.kubeconfig"), "--root-dir=" + p.file("kubelet"),
			"--cert-dir=" + p.file("kubelet-certs"), "--hostname-override=" + nodeName, "--node-ip=" + nodeAddress,
		}},
		{name: "kube-proxy", needs: []func() error{api}, args: []string{
			"--config=" + p.file("kube-proxy.yaml"), "--hostname-override=" + nodeName,
		}},
	}
	for i := range all {
		if all[i].path == "" {
			if all[i].path, err = binary(all[i].name); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func binary(name string) (string, error) {
	for _, folder := range filepath.SplitList(os.Getenv(pathVariable)) {
		if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is in no folder of %s: start by hack/node/node.sh, which builds it", name, pathVariable)
}

// dials returns a check of whether something listens.
func dials(network, address string) func() error {
	return func() error {
		c, err := net.DialTimeout(network, address, time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// apiServerAnswers returns a function that gets a path as the administrator.
func (p place) apiServerAnswers() (func(path string, into any) error, error) {
	pair, err := p.adminPair()
	if err != nil {
		return nil, err
	}
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		// The answer is from the process that this one has started, in a network that nothing else is in.
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}, //nolint:gosec // see above
	}}
	return func(path string, into any) error {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, apiServer+path, nil)
		if err != nil {
			return err
		}
		response, err := c.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		if into == nil {
			return nil
		}
		return json.NewDecoder(response.Body).Decode(into)
	}, nil
}

func (p place) adminPair() (tls.Certificate, error) {
	return tls.LoadX509KeyPair(p.file("pki", "admin.crt"), p.file("pki", "admin.key"))
}

// awaitNode returns when pods can be created and run.
func awaitNode(p place) error {
	get, err := p.apiServerAnswers()
	if err != nil {
		return err
	}
	for ; ; time.Sleep(50 * time.Millisecond) {
		var node struct {
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
		if get("/api/v1/nodes/"+nodeName, &node) != nil || get("/api/v1/namespaces/default/serviceaccounts/default", nil) != nil {
			continue
		}
		for _, c := range node.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				return nil
			}
		}
	}
}
