// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fencedlease/fencedlease/pkg/leader"
)

// nameInKubeconfig is that of the only cluster, user and context.
const nameInKubeconfig = "fencedlease"

// writeKubeconfig writes the kubeconfig of a term into a folder that only the caller can read, and returns its path; it is
// empty if the command keeps the kubeconfig of the caller.
func (o *Options) writeKubeconfig(ctx context.Context, dir string, term *leader.Term) (string, error) {
	if o.carrier == carrierNone {
		return "", nil
	}
	identity, err := o.ownIdentity(ctx)
	if err != nil {
		return "", err
	}
	namespace, err := o.Namespace()
	if err != nil {
		return "", err
	}
	config := kubeconfigOf(o.config, namespace)
	impersonate(config.AuthInfos[nameInKubeconfig], carrying(identity, o.Name, term.Token().String()))
	if raw, err := o.Flags.ToRawKubeConfigLoader().RawConfig(); err == nil {
		config.Clusters[nameInKubeconfig].ProxyURL = proxyOf(raw, *o.Flags.Context, *o.Flags.ClusterName, *o.Flags.ProxyURL)
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("write the kubeconfig of the term: %w", err)
	}
	return path, nil
}

// kubeconfigOf says the same as a configuration. What a configuration has from files stays in them.
func kubeconfigOf(config *rest.Config, namespace string) *clientcmdapi.Config {
	tls := config.TLSClientConfig
	cluster := &clientcmdapi.Cluster{
		Server: config.Host + config.APIPath, TLSServerName: tls.ServerName, InsecureSkipTLSVerify: tls.Insecure,
		CertificateAuthorityData: tls.CAData, DisableCompression: config.DisableCompression,
	}
	if len(tls.CAData) == 0 {
		cluster.CertificateAuthority = tls.CAFile
	}
	user := &clientcmdapi.AuthInfo{
		ClientCertificateData: tls.CertData, ClientKeyData: tls.KeyData, Username: config.Username, Password: config.Password,
		TokenFile: config.BearerTokenFile, Exec: config.ExecProvider, AuthProvider: config.AuthProvider,
	}
	if len(tls.CertData) == 0 {
		user.ClientCertificate = tls.CertFile
	}
	if len(tls.KeyData) == 0 {
		user.ClientKey = tls.KeyFile
	}
	if config.BearerTokenFile == "" {
		user.Token = config.BearerToken // one that is read from a file changes there
	}
	out := clientcmdapi.NewConfig()
	out.Clusters[nameInKubeconfig], out.AuthInfos[nameInKubeconfig] = cluster, user
	out.Contexts[nameInKubeconfig] = &clientcmdapi.Context{Cluster: nameInKubeconfig, AuthInfo: nameInKubeconfig, Namespace: namespace}
	out.CurrentContext = nameInKubeconfig
	return out
}

func impersonate(user *clientcmdapi.AuthInfo, identity rest.ImpersonationConfig) {
	user.Impersonate, user.ImpersonateUID, user.ImpersonateGroups = identity.UserName, identity.UID, identity.Groups
	user.ImpersonateUserExtra = identity.Extra
}

// proxyOf returns the proxy of the chosen cluster, which a configuration has as a function only.
func proxyOf(raw clientcmdapi.Config, context, cluster, flag string) string {
	if flag != "" {
		return flag
	}
	if context == "" {
		context = raw.CurrentContext
	}
	if c := raw.Contexts[context]; c != nil && cluster == "" {
		cluster = c.Cluster
	}
	if c := raw.Clusters[cluster]; c != nil {
		return c.ProxyURL
	}
	return ""
}
