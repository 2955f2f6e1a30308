// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
)

// writeCredentials makes the authority, the service accounts' keys and the administrator.
func (e *Environment) writeCredentials() error {
	var err error
	if e.ca, err = newAuthority(); err != nil {
		return err
	}
	private, public, err := serviceAccountKeys()
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"ca.crt": e.ca.pem, "sa.key": private, "sa.pub": public} {
		if err := os.WriteFile(e.file(name), data, 0o600); err != nil {
			return fmt.Errorf("write credentials: %w", err)
		}
	}
	e.admin = &rest.Config{}
	e.admin, err = e.AddUser("admin", "system:masters")
	return err
}

// Config returns the configuration of the administrator, a member of system:masters, for API server 0. Its clients send as
// fast as they can. The caller may change it.
func (e *Environment) Config() *rest.Config { return rest.CopyConfig(e.admin) }

// Via returns a copy of a configuration for API server i.
func (e *Environment) Via(i int, config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host = localURL("https", e.apiServerPorts[i])
	return config
}

// AddUser returns the configuration of a user with a certificate of their own. Users have the rights that roles give them.
func (e *Environment) AddUser(name string, groups ...string) (*rest.Config, error) {
	pair, err := e.ca.client(name, groups)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            e.admin.Host,
		TLSClientConfig: rest.TLSClientConfig{CAData: e.ca.pem, CertData: pair.cert, KeyData: pair.key},
		QPS:             -1,
	}, nil
}

// ServiceAccount returns the configuration of a service account with a token requested for an hour. It creates the
// account if there is none.
func (e *Environment) ServiceAccount(ctx context.Context, namespace, name string) (*rest.Config, error) {
	clientset, err := kubernetes.NewForConfig(e.admin)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	accounts := clientset.CoreV1().ServiceAccounts(namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create service account: %w", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}
	token, err := accounts.CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request token of service account: %w", err)
	}
	return &rest.Config{
		Host:            e.admin.Host,
		TLSClientConfig: rest.TLSClientConfig{CAData: e.ca.pem},
		BearerToken:     token.Status.Token,
		QPS:             -1,
	}, nil
}

// NewScheme returns a scheme with the built-in kinds, CustomResourceDefinitions and FencedLeases.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("add kinds to scheme: %w", err)
		}
	}
	return scheme, nil
}

// Client returns a client without a cache for a configuration: each read goes to the API server.
func Client(config *rest.Config) (client.Client, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}

// CreateNamespace creates a namespace that no other test uses. Without a controller manager namespaces cannot go away, so
// it is left behind.
func (e *Environment) CreateNamespace(t T, labels ...map[string]string) string {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(e.admin)
	if err != nil {
		t.Fatalf("make client: %v", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "test-" + strconv.FormatInt(e.namespaces.Add(1), 10), Labels: map[string]string{},
	}}
	for _, l := range labels {
		maps.Copy(namespace.Labels, l)
	}
	if _, err := clientset.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	return namespace.Name
}

// WriteKubeconfig writes a configuration to a new file <name>.kubeconfig in Dir and returns its path.
func (e *Environment) WriteKubeconfig(name string, config *rest.Config) (string, error) {
	out := clientcmdapi.NewConfig()
	out.Clusters["test"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	out.AuthInfos["test"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	out.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	out.CurrentContext = "test"
	path := e.file(name + ".kubeconfig")
	if err := clientcmd.WriteToFile(*out, path); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return path, nil
}

// Kubectl runs kubectl as the administrator and returns its standard output. The error holds its standard error.
func (e *Environment) Kubectl(ctx context.Context, args ...string) (string, error) {
	return e.KubectlAs(ctx, e.admin, "", args...)
}

// KubectlAs runs kubectl with a configuration and standard input.
func (e *Environment) KubectlAs(ctx context.Context, config *rest.Config, stdin string, args ...string) (string, error) {
	kubeconfig, err := e.WriteKubeconfig("kubectl-"+strconv.FormatInt(e.kubeconfigs.Add(1), 10), config)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(kubeconfig) }()
	cmd := exec.CommandContext(ctx, e.Binary("kubectl"), args...)
	cmd.Dir = e.root
	// Its own home, so that neither settings nor caches of the machine matter.
	cmd.Env = append(os.Environ(), "HOME="+e.dir, "KUBECONFIG="+kubeconfig)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}
