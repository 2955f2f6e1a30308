// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/version"
)

// Factory gives commands their streams, their clock and clients of the cluster that the flags choose.
type Factory struct {
	genericiooptions.IOStreams
	// Flags are those of every kubectl command, except --token: that is the fencing token here.
	Flags *genericclioptions.ConfigFlags
	// Clock tells ages and waits.
	Clock clock.WithTicker
	// Getenv looks a variable of the environment up.
	Getenv func(string) string
	// Environ is the whole environment, which run hands to its command.
	Environ func() []string
	// Signals are those that reach the plugin. Nil means that none does.
	Signals Signals
}

// NewFactory returns a Factory whose flags have their defaults.
func NewFactory(streams genericiooptions.IOStreams, clk clock.WithTicker, getenv func(string) string) *Factory {
	flags := genericclioptions.NewConfigFlags(true).WithWarningPrinter(streams)
	// A bearer token belongs into the kubeconfig; on a command line every process of the machine can read it.
	flags.BearerToken = nil
	flags.WithWrapConfigFn(func(config *rest.Config) *rest.Config {
		config.UserAgent = version.UserAgent("kubectl-fencedlease")
		config.WarningHandler = rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
		return config
	})
	return &Factory{IOStreams: streams, Flags: flags, Clock: clk, Getenv: getenv, Environ: func() []string { return nil }}
}

// Config returns the configuration that the flags and the kubeconfig ask for. The caller may change it.
func (f *Factory) Config() (*rest.Config, error) {
	config, err := f.Flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return config, nil
}

// Namespace returns the namespace that the flags and the kubeconfig ask for.
func (f *Factory) Namespace() (string, error) {
	namespace, _, err := f.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("read kubeconfig: %w", err)
	}
	return namespace, nil
}

// Mapper returns what maps kinds to resources, by discovery that kubectl caches as well.
func (f *Factory) Mapper() (meta.RESTMapper, error) {
	mapper, err := f.Flags.ToRESTMapper()
	if err != nil {
		return nil, fmt.Errorf("read the kinds of the cluster: %w", err)
	}
	return mapper, nil
}

// Client returns a client of FencedLeases and of the few built-in kinds that commands read. It needs no discovery, and each
// read goes to the API server.
func (f *Factory) Client() (client.WithWatch, error) {
	config, err := f.Config()
	if err != nil {
		return nil, err
	}
	return NewClient(config)
}

// NewClient is Client for a configuration.
func NewClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, corev1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.Kind, meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Event"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}

// Dynamic returns a client of any kind for a configuration.
func Dynamic(config *rest.Config) (dynamic.Interface, error) {
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}

// Metadata returns a client that reads the metadata of any kind.
func (f *Factory) Metadata() (metadata.Interface, error) {
	config, err := f.Config()
	if err != nil {
		return nil, err
	}
	c, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}

// Say writes a line for the person at the terminal. That it cannot be written changes nothing of what was done.
func (f *Factory) Say(format string, args ...any) { Line(f.ErrOut, format, args...) }

// Line writes a line.
func Line(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
