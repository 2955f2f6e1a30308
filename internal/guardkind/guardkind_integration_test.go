//go:build integration

// Copyright 2026 The FencedLease Authors.
// SPDX-License-Identifier: Apache-2.0

package guardkind_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fencedlease/fencedlease/api/v1alpha1"
	"github.com/fencedlease/fencedlease/internal/guardkind"
	"github.com/fencedlease/fencedlease/test/env"
)

func TestClassify(t *testing.T) {
	cluster := env.StartT(t, env.Options{WithoutEndpoints: true})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(cluster.InstallGuardedCRD(t.Context()))
	must(cluster.InstallGuardedCRD(t.Context(), func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Scope = apiextensionsv1.ClusterScoped
		crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "globes", Singular: "globe", Kind: "Globe", ListKind: "GlobeList"}
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Subresources = nil
		}
		crd.Spec.Versions[1].Served = false
	}))
	c, err := env.Client(cluster.Config())
	must(err)
	service := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": "metrics.example.com", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100), "insecureSkipTLSVerify": true,
		"service": map[string]any{"namespace": "default", "name": "metrics"},
	}}}
	service.SetGroupVersionKind(guardkind.APIServices)
	service.SetName("v1.metrics.example.com")
	must(c.Create(t.Context(), service))

	live := guardkind.NewLive(c)
	for name, test := range map[string]struct {
		group, resource string
		want            guardkind.Kind
	}{
		"the core group":    {"", "pods", guardkind.Kind{Class: guardkind.Builtin}},
		"a built-in group":  {"rbac.authorization.k8s.io", "roles", guardkind.Kind{Class: guardkind.Builtin}},
		"definitions":       {"apiextensions.k8s.io", "customresourcedefinitions", guardkind.Kind{Class: guardkind.Builtin}},
		"APIServices":       {"apiregistration.k8s.io", "apiservices", guardkind.Kind{Class: guardkind.Builtin}},
		"FencedLease":       {v1alpha1.GroupName, "fencedleases", guardkind.Kind{Class: guardkind.Own}},
		"an aggregated one": {"metrics.example.com", "nodes", guardkind.Kind{Class: guardkind.Aggregated}},
		"nothing":           {"example.com", "nothings", guardkind.Kind{Class: guardkind.Missing}},
		"a group of Kubernetes that is installed by definitions": {"gateway.networking.k8s.io", "gateways", guardkind.Kind{Class: guardkind.Missing}},
		"a custom resource": {"example.com", "reports", guardkind.Kind{
			Class: guardkind.CRD, Scope: guardkind.NamespaceScoped, Kind: "Report", Subresources: []string{"scale", "status"}, Versions: []string{"v1", "v1beta1"},
		}},
		"a cluster-scoped one": {"example.com", "globes", guardkind.Kind{
			Class: guardkind.CRD, Scope: guardkind.ClusterScoped, Kind: "Globe", Versions: []string{"v1"},
		}},
	} {
		got, err := live.Classify(t.Context(), test.group, test.resource)
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}
