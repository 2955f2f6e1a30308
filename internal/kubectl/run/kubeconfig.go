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
// empty if the command keeps the kubeconfig of the caller. Release is called when the command has gone.
func (o *Options) writeKubeconfig(ctx context.Context, dir string, term *leader.Term) (path string, release func(), err error) {
	release = func() {}
	if o.carrier == carrierNone {
		return "", release, nil
	}
	namespace, err := o.Namespace()
	if err != nil {
		return "", nil, err
	}
	config := kubeconfigOf(o.config, namespace)
	if raw, err := o.Flags.ToRawKubeConfigLoader().RawConfig(); err == nil {
		config.Clusters[nameInKubeconfig].ProxyURL = proxyOf(raw, *o.Flags.Context, *o.Flags.ClusterName, *o.Flags.ProxyURL)
	}
	if o.carrier == carrierCredential {
		file := filepath.Join(dir, "token")
		credential, err := term.Credential(ctx, leader.CredentialOptions{
			Config: o.config, ServiceAccount: o.account, TokenFile: file, Clock: o.Clock,
		})
		if err != nil {
			return "", nil, err
		}
		release = func() {
			if err := credential.Close(); err != nil {
				o.Say("Warning: %v", err)
			}
		}
		config.AuthInfos[nameInKubeconfig] = &clientcmdapi.AuthInfo{TokenFile: file}
	} else {
		identity, err := o.ownIdentity(ctx)
		if err != nil {
			return "", nil, err
		}
		impersonate(config.AuthInfos[nameInKubeconfig], carrying(identity, o.Name, term.Token().String()))
	}
	path = filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		release()
		return "", nil, fmt.Errorf("write the kubeconfig of the term: %w", err)
	}
	return path, release, nil
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
